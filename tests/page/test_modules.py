"""The JavaScript client: the same decisions as the Python client's, the same formats, the same shape."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from client import Segment, Transcript, Word
from model import Recognizer
from tests.client.conftest import Wire
from tests.client.test_conversation import CASES
from tests.documents import DOCUMENTS, Block, blocks
from tests.page.conftest import Page
from tests.server.conftest import RunningServer, noise

EXAMPLES = [block for document in DOCUMENTS for block in blocks(document) if block.language == "js"]

RUN_CASE = """
const [test] = given;
const { Conversation } = await import("/conversation.js");
const same = (found, expected) => JSON.stringify(found) === JSON.stringify(expected);
const sorted = (value) => Array.isArray(value) ? value.map(sorted) : value && typeof value === "object"
    ? Object.fromEntries(Object.entries(value).sort().map(([name, inner]) => [name, sorted(inner)])) : value;
const conversation = new Conversation(test.options ?? {}, test.buffer_seconds ?? 600);
const actions = {
    opening: () => conversation.opening(),
    append: (step) => conversation.append(new Uint8Array(step.bytes)),
    flush: (step) => conversation.flush(step.id),
    stop: () => conversation.stop(),
    room: () => conversation.hasRoom,
    over: () => conversation.isOver,
    frames: () => {
        const sent = [];
        for (let frame; (frame = conversation.nextFrame()) !== null; ) {
            if (typeof frame !== "string") sent.push(frame.length);
            else sent.push([JSON.parse(frame).type, JSON.parse(frame).id].filter(Boolean).join(" "));
        }
        return sent;
    },
    hear: (step) => {
        try {
            return conversation.hear(JSON.stringify(step.message));
        } catch (error) {
            if (error.code === step.raises) return undefined;
            throw error;
        }
    },
};
for (const [index, step] of test.steps.entries()) {
    const found = actions[step.do](step);
    if (step.raises ? found !== undefined : step.expect !== undefined && !same(sorted(found), sorted(step.expect)))
        return `step ${index}: ${JSON.stringify(found)}, expected ${JSON.stringify(step.expect)}`;
}
return "";
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_conversation(page: Page, server: RunningServer, case: dict[str, Any]) -> None:
    page.open(server.url)
    assert page.run_module(RUN_CASE, case) == ""


def test_formats_agree_with_python_s(page: Page, server: RunningServer) -> None:
    page.open(server.url)
    words = tuple(Word(f"word{number}", number * 0.5, number * 0.5 + 0.4, 0.9) for number in range(30))
    segments = [Segment("a b", 0.1, 1.25, 0.5), Segment(" ".join(word.text for word in words), 3661.5, 3676, 0.9, words)]
    transcript = Transcript(segments)
    given = json.loads(transcript.to("json"))["segments"]
    script = "const f = await import('/formats.js'); return [f.asText(given[0]), f.asSrt(given[0]), f.asVtt(given[0])]"
    assert page.run_module(script, given) == [transcript.to("text"), transcript.to("srt"), transcript.to("vtt")]


CONVERSE = """
const [samples] = given;
const { connect } = await import("/client.js");
const session = await connect();
const events = [];
const listening = (async () => { for await (const event of session) events.push(event); })();
for (let at = 0; at < samples.length; at += 4000) await session.send(Float32Array.from(samples.slice(at, at + 4000)));
await session.flush();
session.stop();
await listening;
return events;
"""


def test_says_what_the_recogniser_says_over_a_wire_that_breaks(page: Page, wire: Wire, recognizer: Recognizer) -> None:
    page.open(wire.url.replace("ws", "http"))
    samples = noise(4, seed=32)
    wire.cuts = [20_000] * 5  # bytes
    events = page.run_module(CONVERSE, [float(sample) for sample in samples])
    assert " ".join(event["text"] for event in events if event["type"] == "segment") == recognizer.transcribe(samples).text
    kinds = [event["type"] for event in events]
    assert "resumed" in kinds
    assert kinds.count("flushed") == 1
    assert kinds[-1] == "closed"
    assert events[-1]["received"] == pytest.approx(4.0)


def test_errors(page: Page, server: RunningServer) -> None:
    page.open(server.url)
    script = """
        const { connect } = await import("/client.js");
        const failures = [];
        for (const options of [{ sample_rate: 44 }, { colour: "red" }]) {
            try { await connect(undefined, options); } catch (error) { failures.push([error.name, error.message]); }
        }
        return failures;
    """
    (kind, message), (_, unknown) = page.run_module(script)
    assert kind == "ServerError"
    assert "sample_rate=44: expected" in message
    assert unknown.startswith("colour: no such option; expected one of sample_rate")


def test_the_spectrogram_shows_a_tone_where_it_is(page: Page, server: RunningServer) -> None:
    page.open(server.url)
    script = """
        const { Spectrum, COLUMNS_PER_SECOND } = await import("/spectrum.js");
        const spectrum = new Spectrum(16000);
        const columns = [];
        const samples = Float32Array.from({ length: 16000 }, (_, i) => 0.5 * Math.sin((2 * Math.PI * given[0] * i) / 16000));
        const keep = (column) => columns.push([...column]);
        for (let at = 0; at < samples.length; at += 777) spectrum.accept(samples.subarray(at, at + 777), keep);
        return columns;
    """
    peaks = []
    for hertz in (300, 1000, 3000):
        columns = np.array(page.run_module(script, hertz))
        assert len(columns) == pytest.approx(62, abs=2)
        peaks.append(int(columns.mean(axis=0).argmax()))
    assert peaks == sorted(set(peaks))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda block: block.place)
def test_examples_of_the_documents(page: Page, server: RunningServer, recognizer: Recognizer, example: Block) -> None:
    page.open(server.url)
    samples = noise(2, seed=33)
    code = example.text.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
    script = f"const samples = Float32Array.from(given[0]); {code} return text;"
    text = page.run_module(script, [float(sample) for sample in samples])
    assert text == "".join(segment.text for segment in recognizer.transcribe(samples).segments)
