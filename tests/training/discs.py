"""Small trees in the layout of the discs of the Linguistic Data Consortium."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.training.sphere import BLOCK, write_sphere

SOUND = (np.sin(np.arange(125 * BLOCK) / 9) * 9000).astype(np.int16)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_wsj(folder: Path) -> None:
    """Discs as they were pressed: an index and transcripts on one, recordings on others, one of them in capitals."""
    zero, one = folder / "LDC93S6B", folder / "LDC94S13B"
    write(
        zero / "11-13.1/wsj0/doc/indices/train/tr_s_wv1.ndx",
        ";; Sennheiser training\n"
        "11_1_1:wsj0/si_tr_s/01i/01ic0201.wv1\n11_1_1:wsj0/si_tr_s/01i/01ic0202.wv1\n11_2_1:wsj0/si_tr_s/401/401c0201.wv1\n",
    )
    write(zero / "11-13.1/wsj0/doc/indices/test/nvp/si_et_20.ndx", ";; eval\n11_13_1:wsj0/si_et_20/440/440c0401\n")
    write(one / "13-34.1/wsj1/doc/indices/si_tr_s.ndx", "13_1_1: wsj1/si_tr_s/46z/46zc0301.wv1\n")
    write(one / "13-34.1/wsj1/doc/indices/h1_p0.ndx", "13_16_1: wsj1/si_dt_20/4k0/4k0c0301.wv1\n")
    write(
        zero / "11-4.1/wsj0/transcrp/dots/si_tr_s/01i/01ic0200.dot",
        "Mr. Smith [tap] paid ,COMMA he said .PERIOD (01ic0201)\n*Moreover* <the> we:ll . \\&AMPERSAND pre(tend)- (01ic0202)\n",
    )
    write(
        zero / "11-14.1/wsj0/transcrp/dots/si_et_20/440/440c0400.dot",
        "Drexel [<door_slam] wasn't [phone_ring/] it [/phone_ring] (440c0401)\n",
    )
    write(one / "13-34.1/wsj1/trans/wsj1/si_tr_s/46z/46zc0300.dot", "Ten %PERCENT ~ (46zc0301)\n")
    write(one / "13-34.1/wsj1/trans/wsj1/si_dt_20/4k0/4k0c0300.lsn", "SALE OF THE HOTELS (4K0C0301)\n")
    write_sphere(zero / "11-1.1/wsj0/si_tr_s/01i/01ic0201.wv1", SOUND)
    write_sphere(zero / "11-1.1/wsj0/si_tr_s/01i/01ic0202.wv1", SOUND, shorten=True)
    write_sphere(zero / "11-14.1/wsj0/si_et_20/440/440c0401.wv1", SOUND, shorten=True)
    write_sphere(one / "13-1.1/wsj1/si_tr_s/46z/46zc0301.wv1", SOUND)
    write_sphere(one / "13-16.1/WSJ1/SI_DT_20/4K0/4K0C0301.WV1", SOUND)


def write_timit(folder: Path, spell: Callable[[str], str] = str.lower) -> None:
    for side, speaker in (("train", "fcjf0"), ("test", "mdab0"), ("test", "faks0"), ("test", "mxyz0")):
        for sentence in ("sa1", "si1027", "sx37"):
            stem = spell(f"{side}/dr1/{speaker}/{sentence}")
            write_sphere(folder / f"{stem}{spell('.wav')}", SOUND)
            write(folder / f"{stem}{spell('.phn')}", "0 3050 h#\n3050 4559 sh\n4559 5723 ix\n5723 6642 q\n")
