"""Imports torchaudio beside a CPU build of torch.

The torchaudio on the package index is linked against CUDA: beside a CPU build of torch its compiled extension fails to load and
`import torchaudio` raises. Its Python parts (filterbanks, deltas, resampling, masks) need none of that, so where the ordinary
import fails this module puts a stand-in for `torchaudio._extension` in place and imports it again. Where torchaudio imports
normally, nothing is changed.

Everything that uses torchaudio imports it from here: `from model.torchaudio_import import torchaudio`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

EXTENSION = "torchaudio._extension"


def _refuse(function: Callable[..., Any]) -> Callable[..., Any]:
    def refused(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"torchaudio's {function.__name__} needs its compiled extension, which does not load beside this build of torch"
        )

    return refused


def _stand_in() -> ModuleType:
    module = ModuleType(EXTENSION)
    module.__dict__.update(
        _IS_TORCHAUDIO_EXT_AVAILABLE=False,
        _IS_ALIGN_AVAILABLE=False,
        _check_cuda_version=lambda: None,
        fail_if_no_align=_refuse,
    )
    return module


def import_torchaudio() -> ModuleType:
    try:
        return importlib.import_module("torchaudio")
    except OSError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
            del sys.modules[name]
        sys.modules[EXTENSION] = _stand_in()
        return importlib.import_module("torchaudio")


torchaudio = import_torchaudio()
