"""Record a real run of ``skitter demo`` as docs/assets/run.svg: ``.venv/bin/python docs/_build/record.py``.

Run it again when the output of the command changes.
"""

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).parent.parent / "assets" / "run.svg"
COLUMNS = 118
PROMPT = "$ skitter demo\n"


def recorded() -> str:
    """Run the command on a terminal and return what it leaves on the screen."""
    screen, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "dumb"}
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("skitter"), "demo"],
            cwd=folder, env=environment, stdout=terminal, stderr=terminal, close_fds=True,
        )  # fmt: skip
        os.close(terminal)
        text = b"".join(iter(lambda: _read(screen), b""))
        if process.wait():
            raise SystemExit(f"the demo failed:\n{text.decode()}")
    return text.decode().replace("\r\n", "\n")


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 65536)
    except OSError:  # Linux: the other end is closed
        return b""


if __name__ == "__main__":
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(PROMPT + recorded().rstrip()))
    picture = console.export_svg(title="skitter demo", unique_id="run")
    # Readers load no fonts from the network: a font of their own machine has to do.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL).replace(
        "Fira Code", "DejaVu Sans Mono"
    )
    TARGET.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n", "utf-8")
