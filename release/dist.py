"""Build the wheel and the source archive, and try each of them in an empty environment: `make dist`.

python release/dist.py [FOLDER]        by default dist

They must hold what git tracks, no more and no less, and metadata that PyPI takes. Each is installed with
every Python of `VERSIONS` that this machine has; the others are named and skipped.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "src" / "tidegate"
VERSIONS = ("3.11", "3.12", "3.13")
LEFT_OUT = {".py", ".pyc"}


def main(folder: Path) -> int:
    """Build, look inside, install, try."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", folder, PROJECT)
    archives = sorted(folder.iterdir())
    assert [one.suffix for one in archives] == [".whl", ".gz"], archives
    run(sys.executable, "-m", "twine", "check", "--strict", *archives)
    for archive in archives:
        print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB, {compared_with_git(archive)}")
    tried = 0
    for version in VERSIONS:
        python = interpreter(version)
        if python is None:
            print(f"Python {version} is not on this machine: SKIPPED")
            continue
        for archive in archives:
            print(f"Python {version}, {archive.name}: {tried_in_an_empty_environment(python, archive)}")
            tried += 1
    return 0 if tried else 1


def compared_with_git(archive: Path) -> str:
    """That an archive holds the files that git tracks; the end if it does not."""
    if not (PROJECT / ".git").exists():
        return "not compared: this is no clone"
    tracked = set(run("git", "ls-files").splitlines())
    expected = tracked if archive.suffix == ".gz" else {one for one in tracked if one.startswith("src/")}
    held = files_in(archive)
    if held != expected:
        raise SystemExit(
            f"{archive.name} lacks {sorted(expected - held)} and has besides {sorted(held - expected)}"
        )
    return f"the {len(held)} files that git tracks"


def files_in(archive: Path) -> set[str]:
    """What an archive holds, by the paths of the project; what a build adds is left out."""
    if archive.suffix == ".gz":
        with tarfile.open(archive) as content:
            return {name.split("/", 1)[1] for name in content.getnames()} - {"PKG-INFO"}
    names = zipfile.ZipFile(archive).namelist()
    return {f"src/{name}" for name in names if ".dist-info/" not in name}


def interpreter(version: str) -> str | None:
    """A Python of this version: one of pyenv, whose names on the path may lead nowhere, or another."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(kept.glob(f"{version}.*/bin/python{version}"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


def tried_in_an_empty_environment(python: str, archive: Path) -> str:
    """What the smoke test says of an archive that is installed with this interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", f"{folder}/venv")
        own = f"{folder}/venv/bin/python"
        pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run(*pip, "-c", PROJECT / "constraints.txt", archive)
        shutil.copy(PROJECT / "release" / "smoke.py", folder)
        return run(own, "smoke.py", version_of(archive), *carried_files(), cwd=folder).strip()


def version_of(archive: Path) -> str:
    """The version in an archive's name."""
    return archive.name.removesuffix(".tar.gz").split("-")[1]


def carried_files() -> list[str]:
    """What the package holds beside its code: schemas, templates, styles, parameters, `py.typed`."""
    found = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in LEFT_OUT]
    return sorted(path.relative_to(PACKAGE).as_posix() for path in found)


def run(*command: str | Path, cwd: str | Path = PROJECT) -> str:
    """Run a command to its end; what it printed, also if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else PROJECT / "dist").resolve()))
