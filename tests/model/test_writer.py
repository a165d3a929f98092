from __future__ import annotations

from model.events import Emission
from model.symbols import SymbolTable
from model.writer import Writer

TABLE = SymbolTable()


def write(text: str, delay: float = 0.0) -> tuple[Writer, list[Emission]]:
    writer, emissions = Writer(TABLE, delay), []
    for index, symbol in enumerate(TABLE.encode(text)):
        emission = writer.say(symbol, 1.0 + index / 10, 0.5)
        if emission:
            emissions.append(emission)
    return writer, emissions


def test_spaces_are_said_with_the_character_that_follows() -> None:
    writer, emissions = write(" hi  you ")
    assert [emission.text for emission in emissions] == ["h", "i", " y", "o", "u"]
    segment = writer.close()
    assert segment is not None
    assert segment.text == "hi you"


def test_each_phone_is_a_word() -> None:
    table = SymbolTable(("<s>", "</s>", "sh", "iy"))
    writer = Writer(table, 0.0)
    emissions = [writer.say(symbol, float(time), 0.5) for time, symbol in enumerate([2, 3, 1, 3], start=1)]
    assert [emission.text for emission in emissions if emission] == ["sh", " iy", " iy"]
    segment = writer.close()
    assert segment is not None
    assert segment.text == "sh iy iy"
    assert [(word.text, word.end) for word in segment.words] == [("sh", 1.0), ("iy", 2.0), ("iy", 4.0)]
    first = writer.say(2, 9.0, 0.5)
    assert first is not None
    assert first.text == "sh"


def test_words_have_times_and_confidence() -> None:
    segment = write("hi you", delay=0.3)[0].close()
    assert segment is not None
    assert [(word.text, word.start, word.end) for word in segment.words] == [("hi", 0.6, 0.8), ("you", 0.9, 1.2)]
    assert [word.confidence for word in segment.words] == [0.5, 0.5]
    assert (segment.start, segment.end) == (0.6, 1.2)


def test_no_time_is_before_the_beginning() -> None:
    segment = write("hi", delay=5.0)[0].close()
    assert segment is not None
    assert (segment.start, segment.end) == (0.0, 0.0)


def test_nothing_said_is_no_segment() -> None:
    writer, _ = write("  ")
    assert writer.say(TABLE.end, 0.0, 1.0) is None
    assert writer.close() is None


def test_a_writer_starts_over() -> None:
    writer, _ = write("one ")
    writer.close()
    emission = writer.say(TABLE.encode("x")[0], 9.0, 1.0)
    assert emission is not None
    assert emission.text == "x"


def test_words_do_not_overlap_across_segments() -> None:
    writer, _ = write("one")
    first = writer.close()
    writer.say(TABLE.encode("x")[0], 1.25, 1.0)
    second = writer.close()
    assert first is not None
    assert second is not None
    assert (first.end, second.start, second.end) == (1.2, 1.2, 1.25)
