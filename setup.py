"""The compiled parts of skitter. Everything else is declared in pyproject.toml."""

import sysconfig

from setuptools import Extension, setup


def compiled(name: str, *headers: str) -> Extension:
    """Return a module in C. Without a C compiler, the installation goes on, and Python code takes its place."""
    source = f"src/{name.replace('.', '/')}.c"
    return Extension(name, [source], depends=[*headers], py_limited_api=True, optional=True)


TEXT = "src/skitter/web/_text.h"
MODULES = [
    compiled("skitter.frontier.embedded._key_set"),
    compiled("skitter.frontier.embedded._sorted_keys"),
    compiled("skitter.html._tags"),
    compiled("skitter.web._url_join", TEXT),
    compiled("skitter.web._utf8"),
    compiled("skitter.worker._link_table", TEXT),
]

if sysconfig.get_config_var("Py_GIL_DISABLED"):  # free-threaded Python has no limited API
    setup()
else:
    setup(ext_modules=MODULES, options={"bdist_wheel": {"py_limited_api": "cp311"}})
