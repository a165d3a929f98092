"""The sizes of a model: one frozen dataclass that the weights' file carries with it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, get_type_hints

LARGEST = 16_384  # of any size; whether a model of such sizes fits into memory is another question
MOST_LAYERS = 32
SMALLEST_SCALE, LARGEST_SCALE = 1e-6, 100.0  # of initial weights
LARGEST_NUMBER = 1e30
REDUCTION = 4  # frames are judged and normalised by so many; an entry of the memory is a multiple of that


def expect(name: str, value: float, lowest: float, highest: float) -> None:
    """An error that names the field, unless its value is in range."""
    if not lowest <= value <= highest:
        raise ValueError(f"{name}={value}: expected {lowest}..{highest}")


def expect_all(name: str, values: tuple[int, ...], highest: int) -> None:
    if len(values) > MOST_LAYERS:
        raise ValueError(f"{name}: {len(values)} layers: expected at most {MOST_LAYERS}")
    for value in values:
        expect(name, value, 1, highest)


@dataclass(frozen=True)
class FeatureConfig:
    mel_bins: int = 80
    energy: bool = False  # one more bin with the frame's log energy

    def __post_init__(self) -> None:
        expect("mel_bins", self.mel_bins, 1, 256)

    @property
    def bins(self) -> int:
        return self.mel_bins + int(self.energy)


@dataclass(frozen=True)
class EncoderConfig:
    """The paper's Wall Street Journal encoder; other encoders are other numbers (see `TIMIT`)."""

    conv_filters: tuple[int, ...] = (32, 32)  # 3x3 convolutions, each with stride 2x2
    conv_lstm_filters: int = 32  # 0: no convolutional LSTM
    lstm_units: tuple[int, ...] = (256, 256, 256)
    lstm_skips: tuple[int, ...] = (1, 1, 1)  # keep every n-th output of that LSTM layer
    projection: int = 256  # after each LSTM: linear, batch normalisation, ReLU; 0: none
    both_ways: int = 0  # units of two LSTMs on top, the first from the end: a teacher, which hears whole recordings only; 0: none
    init: Literal["truncated_normal", "uniform"] = "truncated_normal"
    init_scale: float = 0.1

    def __post_init__(self) -> None:
        if len(self.lstm_skips) != len(self.lstm_units):
            raise ValueError(f"lstm_skips={self.lstm_skips}: expected one per LSTM layer, {len(self.lstm_units)} in all")
        if not self.lstm_units:
            raise ValueError("lstm_units=(): expected at least one layer")
        expect_all("conv_filters", self.conv_filters, LARGEST)
        expect_all("lstm_units", self.lstm_units, LARGEST)
        expect_all("lstm_skips", self.lstm_skips, 8)
        expect("conv_lstm_filters", self.conv_lstm_filters, 0, LARGEST)
        expect("projection", self.projection, 0, LARGEST)
        expect("both_ways", self.both_ways, 0, LARGEST)
        if self.both_ways and (not self.projection or set(self.lstm_skips) != {1}):
            raise ValueError(f"both_ways={self.both_ways}: expected a projection and no skips: projection above 0, lstm_skips of 1")
        expect("init_scale", self.init_scale, SMALLEST_SCALE, LARGEST_SCALE)
        if self.reduction % REDUCTION or self.reduction > 16 * REDUCTION:
            raise ValueError(f"{self.reduction} frames per entry: expected a multiple of {REDUCTION}, at most {16 * REDUCTION}")

    @property
    def reduction(self) -> int:
        """Feature frames per encoder state."""
        product = 2 ** len(self.conv_filters)
        for skip in self.lstm_skips:
            product *= skip
        return int(product)

    @property
    def output_size(self) -> int:
        return self.projection or self.lstm_units[-1]


@dataclass(frozen=True)
class AttentionConfig:
    energy: Literal["additive", "bilinear"] = "additive"
    hidden: int = 128
    initial_scale: float = 0.0  # g of the energy; 0: the paper's 1/sqrt(hidden)
    initial_bias: float = -4.0  # r of the energy
    noise: float = 1.0  # standard deviation before the sigmoid, in training
    threshold: float = 0.5
    chunk: int = 1  # entries that the context covers, up to the chosen one; 1 is the paper's
    strict: bool = False  # no entry is chosen twice: the scan goes on after the chosen entry, not at it as in the paper
    beyond: bool = False  # past the last entry, a whole memory goes on with an empty context until the end symbol, as in the paper

    def __post_init__(self) -> None:
        expect("hidden", self.hidden, 1, LARGEST)
        expect("threshold", self.threshold, 0.01, 0.99)
        expect("chunk", self.chunk, 1, 100)


@dataclass(frozen=True)
class DecoderConfig:
    embedding: int = 64
    lstm_units: int = 256
    init_scale: float = 0.1
    embedding_scale: float = 1.0
    output_context: bool = True  # the output layer sees the context, too; otherwise the LSTM alone
    max_symbols_per_entry: int = 4  # a bound, so that no input can make the hard process loop

    def __post_init__(self) -> None:
        expect("embedding", self.embedding, 1, LARGEST)
        expect("lstm_units", self.lstm_units, 1, LARGEST)
        expect("max_symbols_per_entry", self.max_symbols_per_entry, 1, 100)
        expect("init_scale", self.init_scale, SMALLEST_SCALE, LARGEST_SCALE)
        expect("embedding_scale", self.embedding_scale, SMALLEST_SCALE, LARGEST_SCALE)


@dataclass(frozen=True)
class ModelConfig:
    features: FeatureConfig = field(default_factory=FeatureConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)


WSJ = ModelConfig(attention=AttentionConfig(beyond=True))
TIMIT = ModelConfig(
    features=FeatureConfig(mel_bins=40, energy=True),
    encoder=EncoderConfig(
        conv_filters=(),
        conv_lstm_filters=0,
        lstm_units=(512, 512, 512),
        lstm_skips=(2, 2, 1),
        projection=0,
        init="uniform",
        init_scale=0.075,
    ),
    attention=AttentionConfig(hidden=512, initial_bias=-1.0, beyond=True),
    decoder=DecoderConfig(embedding=30, init_scale=0.075, embedding_scale=(3 / 30) ** 0.5, output_context=False),
)

Config = TypeVar("Config")


def config_to_dict(config: Any) -> dict[str, Any]:
    return asdict(config)


def config_from_dict(kind: type[Config], values: dict[str, Any], where: str = "config") -> Config:
    """Builds the frozen dataclass `kind`; an unknown key or a value of another type is an error that names it."""
    if not isinstance(values, dict):
        raise ValueError(f"{where}={values!r}: expected a table")
    hints = get_type_hints(kind)
    known = {entry.name for entry in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{where}.{unknown[0]}: unknown; expected one of {', '.join(sorted(known))}")
    arguments = {name: _convert(hints[name], value, f"{where}.{name}") for name, value in values.items()}
    return kind(**arguments)


def _convert(hint: Any, value: Any, where: str) -> Any:
    if is_dataclass(hint):
        return config_from_dict(hint, value, where)  # type: ignore[arg-type]
    origin = getattr(hint, "__origin__", None)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where}={value!r}: expected a list")
        return tuple(_convert(hint.__args__[0], item, where) for item in value)
    if origin is Literal:
        if value not in hint.__args__:
            raise ValueError(f"{where}={value!r}: expected one of {', '.join(map(repr, hint.__args__))}")
        return value
    if origin is dict and not isinstance(value, dict):
        raise ValueError(f"{where}={value!r}: expected a table")
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= LARGEST_NUMBER:
            raise ValueError(f"{where}={value}: expected a finite number of at most {LARGEST_NUMBER:g}")
        return float(value)
    if isinstance(hint, type) and (not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)):
        raise ValueError(f"{where}={value!r}: expected {hint.__name__}")
    return value
