"""The page at work: what a user sees, speaks, drops and downloads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from client import Segment, Transcript, Word
from model import Recognizer
from tests.client.conftest import Wire
from tests.client.sound_card import wait_until
from tests.conftest import BEST
from tests.page.conftest import SPEECH_SECONDS, Page, StartBrowser
from tests.server.conftest import RunningServer, ServerFactory, noise


def transcript_of(recognizer: Recognizer) -> Transcript:
    segments = [
        Segment(said.text, said.start, said.end, 1.0, tuple(Word(w.text, w.start, w.end, w.confidence) for w in said.words))
        for said in recognizer.transcribe(noise(SPEECH_SECONDS, seed=31), BEST).segments
    ]
    return Transcript(segments)


def wait_for_end(page: Page) -> None:
    page.wait_for(lambda: page.text("#record") == "Start" and page.state in ("Done", "Ready"), "it does not end")


def test_speak_and_watch(page: Page, server: RunningServer) -> None:
    page.open(server.url)
    page.click("#record")
    page.wait_for(lambda: page.growing, "no text while one speaks")
    assert page.text("#record") == "Stop", "text comes before the audio ends"
    first = page.growing
    page.wait_for(lambda: len(page.growing) > len(first) or page.segments, "the text does not grow")
    page.wait_for(lambda: re.fullmatch(r"\d+\.\d s", page.text("#lag")), "no lag is shown")
    assert (
        page.run("return new Set(document.querySelector('#timeline').getContext('2d').getImageData(0, 0, 900, 150).data).size") > 20
    )
    page.click("#record")
    wait_for_end(page)
    assert page.segments
    assert not page.growing
    assert re.fullmatch(r"\d+:\d\d", page.text("#segments .time"))
    assert page.text("#elapsed") != "0:00"
    assert "gibberish" in page.text("footer")
    assert page.complaints() == []


def test_a_second_recording_goes_on_after_the_first(page: Page, server: RunningServer) -> None:
    page.open(server.url)
    for _ in range(2):
        known = len(page.segments)
        page.run("document.activeElement.blur()")
        page.type("body", "r")
        page.wait_for(lambda: page.growing, "no text while one speaks")
        page.type("body", "r")
        wait_for_end(page)
        assert len(page.segments) > known
    starts = page.run("return [...document.querySelectorAll('#segments .time')].map((time) => time.innerText)")
    assert starts == sorted(starts)


def test_drop_a_file_and_download_what_it_says(page: Page, server: RunningServer, recognizer: Recognizer, speech: Path) -> None:
    page.open(server.url)
    page.drop(speech)
    wait_for_end(page)
    expected = transcript_of(recognizer)
    assert page.segments == [segment.text for segment in expected.segments]
    for suffix, format in (("txt", "text"), ("srt", "srt"), ("vtt", "vtt")):
        page.click(f"[data-format={suffix}]")
        file = page.downloads / f"speech.{suffix}"
        wait_until(lambda file=file: file.exists() and file.stat().st_size, f"no {file.name}")  # type: ignore[misc]
        assert file.read_text() == expected.to(format)  # type: ignore[arg-type]
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    page.click("#copy")
    page.wait_for(lambda: page.text("#copy") == "Copied", "it does not copy")
    assert page.run_module("return await navigator.clipboard.readText()") == expected.to("text")
    page.driver.execute_cdp_cmd("Browser.resetPermissions", {})
    page.click("#segments .time")
    page.click("#clear")
    assert page.segments == []
    assert page.text("#empty-text") == "Nothing has been said yet."


def test_open_a_file(page: Page, server: RunningServer, recognizer: Recognizer, speech: Path, tmp_path: Path) -> None:
    page.open(server.url)
    page.type("#file", str(speech))
    wait_for_end(page)
    assert page.segments == [segment.text for segment in transcript_of(recognizer).segments]
    (tmp_path / "letter.wav").write_text("no audio at all")
    page.type("#file", str(tmp_path / "letter.wav"))
    page.wait_for(lambda: page.problem, "no complaint")
    assert page.problem.startswith("letter.wav cannot be read as audio.")
    page.click("#dismiss")
    assert page.problem == ""


def test_a_broken_connection_is_told_and_mended(page: Page, wire: Wire, recognizer: Recognizer, speech: Path) -> None:
    page.open(wire.url.replace("ws", "http"))
    target = wire.target
    page.click("#record")
    page.wait_for(lambda: page.growing, "no text while one speaks")
    wire.target = None
    wire.cut()
    page.wait_for(lambda: page.state == "Connection lost, trying again", "it does not notice")
    wire.target = target
    page.wait_for(lambda: page.state == "Listening", "it does not come back")
    page.click("#record")
    wait_for_end(page)
    assert page.segments
    assert page.problem == ""


def test_nobody_has_to_wait_for_a_server_that_is_gone(page: Page, wire: Wire) -> None:
    page.open(wire.url.replace("ws", "http"))
    page.click("#record")
    page.wait_for(lambda: page.growing, "no text while one speaks")
    wire.target = None
    wire.cut()
    page.wait_for(lambda: page.state == "Connection lost, trying again", "it does not notice")
    heard = page.growing.strip()
    page.click("#record")
    assert page.state == "Connection lost, trying again", "what it waits for"
    page.click("#record")
    page.wait_for(lambda: page.text("#record") == "Start", "it does not end")
    assert page.state == "Stopped"
    assert page.problem == ""
    assert page.segments[-1] == heard, "what was heard until then is lost"


def test_no_server(page: Page, wire: Wire) -> None:
    page.open(wire.url.replace("ws", "http"))
    wire.target = None
    page.click("#record")
    page.wait_for(lambda: page.problem, "no complaint")
    assert page.problem == "The server cannot be reached. Is it running, and can this device reach it?"
    assert page.text("#record") == "Start"


def test_no_room(page: Page, start_server: ServerFactory, speech: Path) -> None:
    page.open(start_server(max_sessions=1).url)
    page.run_module("window.held = await (await import('/client.js')).connect()")
    page.drop(speech)
    page.wait_for(lambda: page.problem, "no complaint")
    assert "1 sessions are open" in page.problem


def test_a_key_is_asked_for(page: Page, start_server: ServerFactory, speech: Path) -> None:
    page.open(start_server(api_keys="sesame").url)
    page.drop(speech)
    page.wait_for(lambda: page.problem, "no complaint")
    assert page.problem == "This server wants an API key."
    page.type("#key", "abracadabra\n")
    page.wait_for(lambda: page.problem == "The server does not know that API key.", "a wrong key is taken")
    page.run("document.querySelector('#key').value = ''")
    page.type("#key", "sesame\n")
    page.wait_for(lambda: page.segments, "the key is not used")
    wait_for_end(page)


def test_no_microphone(start_browser: StartBrowser, server: RunningServer) -> None:
    page = start_browser()
    page.open(server.url)
    page.click("#record")
    page.wait_for(lambda: page.problem, "no complaint")
    assert page.problem == "No microphone was found. Plug one in, or open an audio file instead."
    assert page.text("#record") == "Start"


def test_microphone_denied(start_browser: StartBrowser, server: RunningServer) -> None:
    page = start_browser("--use-fake-device-for-media-stream", microphone=2)
    page.open(server.url)
    page.click("#record")
    page.wait_for(lambda: page.problem, "no complaint")
    assert page.problem.startswith("The microphone is not allowed here.")


@pytest.mark.parametrize(
    ("name", "message", "sentence"),
    [
        ("NotAllowedError", "Permission dismissed", "The microphone is not allowed here. Allow it in the browser's address bar"),
        ("NotAllowedError", "Permission denied by system", "The system does not let this browser use the microphone: allow it"),
        ("NotReadableError", "Could not start audio source", "The microphone cannot be opened: another program may hold it."),
        ("OverconstrainedError", "", "That microphone is no longer there. Choose another one."),
        ("AbortError", "Timeout starting", "The microphone does not work: Timeout starting"),
    ],
)
def test_what_can_be_wrong_with_a_microphone(page: Page, server: RunningServer, name: str, message: str, sentence: str) -> None:
    page.open(server.url)
    page.run("navigator.mediaDevices.getUserMedia = async () => { throw new DOMException(...arguments[0]) }", [message, name])
    page.click("#record")
    page.wait_for(lambda: page.problem, "no complaint")
    assert page.problem.startswith(sentence)
    assert page.text("#record") == "Start"
    assert page.state == "Ready"


def test_a_microphone_that_is_unplugged(page: Page, server: RunningServer) -> None:
    page.open(server.url)
    page.run("""const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = async (wish) => (window.stream = await open(wish));""")
    page.click("#record")
    page.wait_for(lambda: page.growing, "no text while one speaks")
    page.run("window.stream.getAudioTracks()[0].dispatchEvent(new Event('ended'))")
    page.wait_for(lambda: page.text("#record") == "Start", "it does not end")
    assert page.problem == "The microphone is gone. What it recorded has been transcribed."
    assert page.segments


def test_on_a_phone(start_browser: StartBrowser, wire: Wire, speech: Path) -> None:
    page = start_browser("--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={speech}", phone=True)
    page.open(wire.url.replace("ws", "http"))
    page.click("#record")
    page.wait_for(lambda: page.growing, "no text while one speaks")
    assert page.run("return document.scrollingElement.scrollWidth <= innerWidth"), "it is wider than the screen"
    small = """return [...document.querySelectorAll("button, select, .button")].filter((element) => element.checkVisibility())
        .filter((element) => element.getBoundingClientRect().height < 28).map((element) => element.outerHTML)"""
    assert page.run(small) == [], "too small for a finger"
    height = "return document.querySelector('header').offsetHeight"
    usual = page.run(height)
    wire.target = None
    wire.cut()
    page.wait_for(lambda: page.state == "Connection lost, trying again", "it does not notice")
    assert page.run(height) == usual, "the header grows"
    cut = "const text = document.querySelector('#state-text'); return text.scrollWidth > text.clientWidth"
    assert not page.run(cut), "the sentence does not fit"
    assert page.run("return document.scrollingElement.scrollWidth <= innerWidth"), "it is wider than the screen"


def test_light_and_dark(page: Page, server: RunningServer) -> None:
    page.open(server.url)
    before = page.run("return getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.run("return getComputedStyle(document.body).backgroundColor") != before
    page.open(server.url)
    assert page.run("return getComputedStyle(document.body).backgroundColor") != before, "the choice is forgotten"
    page.click("#theme")
    assert page.run("return getComputedStyle(document.body).backgroundColor") == before


def test_nothing_is_asked_of_anyone_else(start_browser: StartBrowser, server: RunningServer, speech: Path) -> None:
    page = start_browser()
    page.open(server.url)
    page.drop(speech)
    wait_for_end(page)
    own = re.compile(rf"(http|ws)://127\.0\.0\.1:{server.port}/")
    asked = [url for url in page.requests() if not url.startswith(("data:", "blob:", "chrome:"))]
    assert len(asked) > 8
    assert [url for url in asked if not own.match(url)] == []


def test_the_description_of_the_api_needs_nobody_else(start_browser: StartBrowser, server: RunningServer) -> None:
    page = start_browser()
    page.open(server.url + "/docs")
    shown = page.run("return [...document.querySelectorAll('summary code')].map((code) => code.innerText)")
    assert {"ready", "text", "segment", "flush", "/v1/transcribe", "/v1/audio/transcriptions", "/metrics"} <= set(shown)
    page.run("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    assert "integer, 8000..48000" in page.text("main")
    assert page.problem == ""
    assert page.complaints() == []
    own = re.compile(rf"http://127\.0\.0\.1:{server.port}/")
    asked = [url for url in page.requests() if not url.startswith(("data:", "chrome:"))]
    assert len(asked) > 5
    assert [url for url in asked if not own.match(url)] == []


def test_the_description_of_the_api_wants_a_key_where_the_server_does(page: Page, start_server: ServerFactory) -> None:
    page.open(start_server(api_keys="sesame").url + "/docs")
    page.wait_for(lambda: page.problem, "no complaint")
    assert page.problem.endswith("the server wants an API key; give it on the page first.")
    page.run("sessionStorage.setItem('key', 'sesame')")
    page.open(page.driver.current_url)
    assert page.problem == ""
    assert "/v1/transcribe" in page.text("main")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_can_be_read_and_operated_by_anyone(page: Page, server: RunningServer, colours: str) -> None:
    page.open(server.url)
    if page.run("return document.documentElement.dataset.theme") != colours:
        page.click("#theme")
    nameless = """return [...document.querySelectorAll("button, select, input:not([type=file]), canvas, section, progress")]
        .filter((element) => !(element.innerText?.trim() || element.ariaLabel || element.labels?.length))
        .map((element) => element.outerHTML)"""
    assert page.run(nameless) == []
    assert page.run("return document.documentElement.lang") == "en"
    assert page.run("return document.querySelectorAll('h1').length") == 1
    assert page.run("return document.querySelector('#segments').ariaLive") == "polite"
    faint = """
        const context = document.createElement("canvas").getContext("2d");
        const style = getComputedStyle(document.documentElement);
        const light = (name) => {
            context.fillStyle = style.getPropertyValue(name);
            context.fillRect(0, 0, 1, 1);
            const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
            const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map(linear);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
        return [["--text", "--surface"], ["--muted", "--surface"], ["--muted", "--ground"], ["--accent-text", "--accent"],
            ["--bad", "--bad-ground"], ["--warn", "--surface"]].filter(([a, b]) => contrast(a, b) < 4.5);
    """
    assert page.run(faint) == [], "WCAG AA asks for a contrast of 4.5"
