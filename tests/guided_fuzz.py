"""Runs a fuzz target of ``unit/test_fuzz.py`` with coverage guidance by atheris, which keeps inputs that reach new code.

    python tests/guided_fuzz.py robots_txt CORPUS -max_total_time=3600

The first argument is part of the name of a target. All others go to libFuzzer: a folder for the inputs, and options.
Atheris is not a dependency of the tests, because it does not have wheels for every Python that skitter supports.

"""

import importlib
import sys
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "unit")]
with atheris.instrument_imports(include=["skitter", "click"]):
    import test_fuzz

    from skitter.cli.main import _MODULES

    # The command line imports each command when it is first used, which is too late for instrumentation.
    for module in set(_MODULES.values()):
        importlib.import_module(f"skitter.cli.{module}")


def main():
    wanted, *options = sys.argv[1:]
    names = [name for name in dir(test_fuzz) if name.startswith("test_") and wanted in name]
    if len(names) != 1:
        raise SystemExit(f"{len(names)} targets have {wanted!r} in their names: {', '.join(names)}")
    for folder in options:
        if not folder.startswith("-"):
            Path(folder).mkdir(parents=True, exist_ok=True)
    atheris.Setup([sys.argv[0], *options], getattr(test_fuzz, names[0]).hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
