"""The words that CTC most likely heard, by a lexicon and a language model of words: for pseudo-labels, not for live streams.

The search is flashlight-text's (`pip install flashlight-text`), with its hundred hypotheses in C++; the language model is an ARPA
file, as KenLM's `lmplz` and most other tools write it, and its words are the lexicon.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from model.symbols import SPACE, UNKNOWN, SymbolTable

LANGUAGE_WEIGHT, WORD_BONUS = 1.3, 0.5  # chosen on 60 dev recordings of each set
HYPOTHESES, SYMBOLS, THRESHOLD = 100, 15, 15.0
NEVER = -30.0


class WordSearch:
    def __init__(self, arpa: Path, symbols: SymbolTable) -> None:
        try:
            from flashlight.lib.text import decoder as search
            from flashlight.lib.text.decoder.kenlm import KenLM
            from flashlight.lib.text.dictionary import Dictionary
        except ImportError as error:
            raise ValueError(f'words={str(arpa)!r}: its search needs flashlight-text: pip install "monoscribe[words]"') from error
        if SPACE not in symbols.symbols:
            raise ValueError(f"words={str(arpa)!r}: the model writes no spaces between words; expected one that writes characters")
        self._symbols, self._space = symbols, symbols.encode(SPACE)[0]
        words = [word for word in vocabulary(arpa) if set(word) <= set(symbols.symbols)]
        if not words:
            raise ValueError(f"words={str(arpa)!r}: no word in it can be written with the model's symbols")
        self._words = Dictionary([*words, UNKNOWN])
        try:
            language = KenLM(str(arpa), self._words)
        except RuntimeError as error:
            raise ValueError(f"words={str(arpa)!r}: not a language model: {str(error).splitlines()[-1]}") from error
        lexicon = search.Trie(len(symbols), self._space)
        start = language.start(False)
        for word in words:
            index = self._words.get_index(word)
            lexicon.insert([*symbols.encode(word), self._space], index, language.score(start, index)[1])
        lexicon.smear(search.SmearingMode.MAX)
        options = search.LexiconDecoderOptions(
            beam_size=HYPOTHESES,
            beam_size_token=SYMBOLS,
            beam_threshold=THRESHOLD,
            lm_weight=LANGUAGE_WEIGHT,
            word_score=WORD_BONUS,
            unk_score=-np.inf,
            sil_score=0.0,
            log_add=True,
            criterion_type=search.CriterionType.CTC,
        )
        unknown = self._words.get_index(UNKNOWN)
        self._search: Any = search.LexiconDecoder(options, lexicon, language, self._space, symbols.blank, unknown, [], False)

    def __call__(self, logs: Tensor) -> tuple[str, float]:
        """The text of CTC's log probabilities (T, symbols), and its logarithmic score, the language model's share included."""
        ending = np.full((2, len(self._symbols)), NEVER, dtype=np.float32)  # a space, and nothing: so that the last word can end
        ending[0, self._space] = ending[1, self._symbols.blank] = 0
        heard = np.ascontiguousarray(np.concatenate([logs.float().numpy(), ending]))
        found = self._search.decode(heard.ctypes.data, *heard.shape)
        if not found:
            return "", 0.0
        return " ".join(self._words.get_entry(word) for word in found[0].words if word >= 0), found[0].score


def vocabulary(arpa: Path) -> list[str]:
    """The words of an ARPA file, its markers left out."""
    words: list[str] = []
    try:
        with arpa.open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("\\2-grams:") or line.startswith("\\end\\"):
                    return words
                fields = line.split("\t")
                if len(fields) > 1 and not fields[1].startswith("<"):
                    words.append(fields[1].strip())
    except OSError as error:
        raise ValueError(f"words={str(arpa)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"words={str(arpa)!r}: not UTF-8 at byte {error.start}") from error
    raise ValueError(f"words={str(arpa)!r}: expected an ARPA file, found no end of its 1-grams")
