"""What the commands `train`, `evaluate`, `pseudo-label`, `average`, `language` and `synthesize` do."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from pathlib import Path

from training.prepare import prepare
from training.recipe import load_recipe

CACHE = "cache"
FAILED, USAGE, INTERRUPTED = 1, 2, 130


def in_one_sentence(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A wrong value ends the command with the sentence that names it, not with a traceback; so does a disk that is full."""

    def run(chosen: argparse.Namespace) -> int:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no worker process is left behind
        try:
            return command(chosen)
        except ValueError as error:
            print(f"monoscribe {chosen.command}: {error}", file=sys.stderr)
            return USAGE
        except OSError as error:
            where = error.filename or getattr(chosen, "out", "")  # writing to a disk that is full names no file
            print(f"monoscribe {chosen.command}: {where}: {error.strerror or error}", file=sys.stderr)
            return FAILED
        except KeyboardInterrupt:
            print(f"monoscribe {chosen.command}: interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenExecutor:
            print(f"monoscribe {chosen.command}: a worker process died; is there enough memory?", file=sys.stderr)
            return FAILED
        finally:
            signal.signal(signal.SIGTERM, before)

    return run


@in_one_sentence
def run_train(chosen: argparse.Namespace) -> int:
    from training.run import Pace, train

    recipe = load_recipe(chosen.recipe)
    keep = chosen.cache or chosen.out / CACHE
    data = prepare(chosen.data, "train", keep, recipe.model.features)
    dev = prepare(chosen.dev, "dev", keep, recipe.model.features)
    pace = Pace(evaluate_steps=chosen.evaluate_steps, checkpoint_minutes=chosen.checkpoint_minutes, limit_hours=chosen.limit_hours)
    train(recipe, data, dev, chosen.out, start=chosen.start, pace=pace)
    return 0


@in_one_sentence
def run_evaluate(chosen: argparse.Namespace) -> int:
    from model.files import PRETRAINED, load_model
    from training.measure import measure, measure_streaming
    from training.table import show

    network, card = load_model(chosen.model or PRETRAINED)
    if chosen.streaming:
        if chosen.decoder and set(chosen.decoder) - {"hard", "beam"}:
            raise ValueError(f"decoder={' '.join(chosen.decoder)}: expected hard or beam with --streaming")
        results = measure_streaming(network, card, chosen.data, chosen.decoder or ["hard"], chosen.limit)
    else:
        with tempfile.TemporaryDirectory() as nowhere:
            folders = prepare(chosen.data, "test", chosen.cache or Path(nowhere), network.config.features)
            results = measure(network, card, folders, chosen.decoder or ["hard"], chosen.limit)
    if chosen.json:
        print(json.dumps([result.to_dict() for result in results], indent=1))
    else:
        show(results, worst=chosen.worst, speakers=chosen.speakers)
    return 0


@in_one_sentence
def run_pseudo_label(chosen: argparse.Namespace) -> int:
    from training.selftrain import Filter, pseudo_label

    filters = Filter(confidence=chosen.confidence, agreement=chosen.agreement, share=chosen.share)
    kept, heard = pseudo_label(
        chosen.model,
        chosen.data,
        chosen.out,
        decoder=chosen.decoder,
        words=chosen.words,
        filters=filters,
        precision=chosen.precision,
        jobs=chosen.jobs,
        cache=chosen.cache,
    )
    print(f"{chosen.out}: kept {kept} of {heard} recordings")
    return 0


@in_one_sentence
def run_average(chosen: argparse.Namespace) -> int:
    from training.average import average

    average(chosen.models, chosen.out, chosen.shares, chosen.bits)
    return 0


@in_one_sentence
def run_language(chosen: argparse.Namespace) -> int:
    from training.language import Pruning, build_language, read_sentences

    pruning = Pruning(vocabulary=chosen.vocabulary, bigram=chosen.bigrams, trigram=chosen.trigrams)
    texts = [words for path in chosen.texts for words in read_sentences(path)]
    held = build_language(texts, chosen.out, pruning)
    print(f"{chosen.out}: " + ", ".join(f"{count} {name}" for name, count in held.items()))
    return 0


@in_one_sentence
def run_synthesize(chosen: argparse.Namespace) -> int:
    from training.synthesis import synthesize

    synthesize(chosen.sentences, chosen.out, hours=chosen.hours, sounds=chosen.sounds, jobs=chosen.jobs, seed=chosen.seed)
    return 0
