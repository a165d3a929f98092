"""All that has parameters: front end, encoder, CTC head, decoder; and the language model, if there is one."""

from __future__ import annotations

from torch import nn

from model.config import ModelConfig
from model.decoder import Decoder
from model.encoder import Encoder
from model.features import Features
from model.language import Language
from model.symbols import SymbolTable


class Network(nn.Module):
    def __init__(self, config: ModelConfig, symbols: SymbolTable) -> None:
        super().__init__()
        self.config = config
        self.symbols = symbols
        self.language: Language | None = None  # for the beam search
        self.features = Features(config.features)
        self.encoder = Encoder(config.encoder, config.features.bins)
        self.ctc = nn.Linear(config.encoder.output_size, len(symbols))
        self.decoder = Decoder(config.decoder, config.attention, config.encoder.output_size, len(symbols))

    def count_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())
