"""What we claim, measured. Needs a checkout of the source: `monoscribe benchmark`, or `python -m benchmarks.NAME` from its root."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "tests" / "data" / "demo.flac"
