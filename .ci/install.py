"""Makes a virtual environment and installs Monoscribe with an extra into it, for `make`: python3 .ci/install.py .venv serve

Runs on any Python 3.6 or newer, so that an old one can be told; and one at a time, however many `make` are started at once.
"""

import fcntl
import os
import subprocess
import sys

NEEDED = (3, 11)


def main(folder: str, extra: str) -> "str | int":
    if sys.version_info < NEEDED:
        needed, here = (".".join(str(number) for number in version[:2]) for version in (NEEDED, sys.version_info))
        return f"Python {needed} or newer is needed, and {sys.executable} is {here}. Name another one: make PYTHON=python{needed}"
    done = os.path.join(folder, extra + ".installed")
    with open("pyproject.toml") as project:
        try:
            fcntl.flock(project, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"Another `make` sets up {folder}; waiting for it.", flush=True)
            fcntl.flock(project, fcntl.LOCK_EX)
        if os.path.exists(done) and os.path.getmtime(done) >= os.path.getmtime("pyproject.toml"):
            return 0  # another `make` did it while we waited
        print(f"Setting up {folder} with monoscribe[{extra}], once; that may take some minutes.", flush=True)
        python = os.path.join(folder, "bin", "python")
        if not is_usable(python) and subprocess.call([sys.executable, "-m", "venv", "--clear", folder]):
            return "No virtual environment could be made. On Debian and Ubuntu: apt install python3-venv"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.call([*pip, "--editable", f".[{extra}]"]):
            return "The installation failed. Once its cause is mended, give the same command again."
        with open(done, "w"):
            os.utime(done)
    return 0


def is_usable(python: str) -> bool:
    """A venv that could not be finished has a Python, but no pip."""
    silent = subprocess.DEVNULL
    return os.path.exists(python) and subprocess.call([python, "-m", "pip", "--version"], stdout=silent, stderr=silent) == 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
