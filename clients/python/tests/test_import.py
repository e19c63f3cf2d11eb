"""What importing the package loads. A command-line tool pays for it at every start."""

from __future__ import annotations

import subprocess
import sys

#: Each takes longer to import than the package itself.
LATER = ["asyncio", "concurrent.futures", "ipaddress", "json", "logging", "selectors", "socket", "ssl", "urllib.parse"]
SCRIPT = "import sys; before = set(sys.modules); import leasehold_client; print(*sorted(set(sys.modules) - before))"


def test_an_import_does_not_load_what_only_a_connection_needs() -> None:
    # -S: what is installed beside it may load modules at the start of the interpreter.
    path = next(folder for folder in sys.path if folder.endswith("src"))
    script = f"import sys; sys.path.insert(0, {path!r}); {SCRIPT}"
    done = subprocess.run([sys.executable, "-S", "-c", script], check=True, capture_output=True, text=True, timeout=120)
    loaded = done.stdout.split()
    assert "leasehold_client._core" in loaded
    assert [name for name in LATER if name in loaded] == []
    assert "leasehold_client._runner" not in loaded
