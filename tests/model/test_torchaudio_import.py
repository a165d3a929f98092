"""The guard is tested in processes of their own: an import happens once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from model.torchaudio_import import torchaudio


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)


def test_an_import_that_works_is_left_alone() -> None:
    code = """
import importlib, sys, types
module = types.ModuleType("torchaudio")
sys.modules["torchaudio"] = module
from model.torchaudio_import import torchaudio
assert torchaudio is module
assert "torchaudio._extension" not in sys.modules
"""
    result = python(code)
    assert result.returncode == 0, result.stderr


def test_a_broken_extension_is_replaced() -> None:
    code = """
import importlib.machinery, sys

class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "torchaudio._extension":
            raise OSError("libc10_cuda.so: cannot open shared object file")

sys.meta_path.insert(0, Broken())
from model.torchaudio_import import torchaudio
assert torchaudio.functional.melscale_fbanks(257, 20.0, 8000.0, 80, 16000).shape == (257, 80)
"""
    result = python(code)
    assert result.returncode == 0, result.stderr


def test_what_needs_the_extension_says_so() -> None:
    from torchaudio import _extension

    if _extension._IS_ALIGN_AVAILABLE:
        pytest.skip("torchaudio's extension loads here")
    with pytest.raises(RuntimeError, match="needs its compiled extension"):
        torchaudio.functional.forced_align(None, None)
