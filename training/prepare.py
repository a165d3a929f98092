"""Data as the command line names it, to feature caches: each is computed once."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from model.config import FeatureConfig
from training.cache import FEATURES_FILE, INDEX_FILE, build
from training.corpora import Role, Utterance, read_corpus

LONGEST_WAIT = 24 * 3600.0  # seconds, for the process that computes the features
GLANCE = 0.5
NAMED = 20  # of the recordings that could not be read


def is_cache(where: str) -> bool:
    return (Path(where) / INDEX_FILE).is_file() and (Path(where) / FEATURES_FILE).is_file()


def prepare(data: Sequence[str], role: Role, keep: Path, config: FeatureConfig, workers: int = os.cpu_count() or 1) -> list[Path]:
    """The feature caches of `data`, each a cache itself or computed into a folder of `keep` that its content names.

    Of several processes on a machine the first computes and the others wait.
    """
    folders = []
    for where in data:
        if is_cache(where):
            folders.append(Path(where))
            continue
        utterances = read_corpus(where, role)
        folder = keep / f"features-{fingerprint(utterances, config)}"
        if not is_cache(str(folder)):
            if os.environ.get("LOCAL_RANK", "0") == "0":
                unread = build(utterances, folder, config, workers)
                tell_left_out(unread, f"of {len(utterances)} recordings of {where} could not be read")
            else:
                wait_for(folder)
        folders.append(folder)
    return folders


def tell_left_out(reasons: Sequence[str], what: str) -> None:
    if reasons:
        print(f"{len(reasons)} {what}; left out:", *reasons[:NAMED], sep="\n  ", file=sys.stderr)
        if len(reasons) > NAMED:
            print(f"  and {len(reasons) - NAMED} more", file=sys.stderr)


def fingerprint(utterances: Sequence[Utterance], config: FeatureConfig) -> str:
    """Tells lists of utterances and kinds of features apart."""
    lines = [json.dumps(asdict(config)), *(f"{u.path.resolve()}\t{u.text}\t{u.speaker}\t{u.part}" for u in utterances)]
    return hashlib.sha256("\n".join(lines).encode(errors="surrogatepass")).hexdigest()[:12]


def wait_for(folder: Path) -> None:
    deadline = time.monotonic() + LONGEST_WAIT
    while not is_cache(str(folder)):
        if time.monotonic() > deadline:
            raise ValueError(f"{folder}: no feature cache after {LONGEST_WAIT / 3600:.0f} hours")
        time.sleep(GLANCE)
