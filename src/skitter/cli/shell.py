"""``skitter shell``: tries selectors on a page."""

from __future__ import annotations

import code
import importlib
import importlib.util
import sys
import tempfile
import webbrowser
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Self

import click

from skitter._utils.concurrency import LoopThread
from skitter.cli.console import FAILED, complain
from skitter.cli.fetch import browser_option, robots_option, single_settings, url_argument
from skitter.cli.options import setting_option
from skitter.errors import SkitterError, UsageError

if TYPE_CHECKING:
    from skitter.request import Request
    from skitter.response import Response

_BANNER = """\
request     {request!r}
response    {response!r}
fetch(url)  fetch another page (or a Request) and make it the response
view()      show the response in a browser"""


@click.command()
@url_argument
@browser_option
@robots_option
@click.option(
    "--code",
    "-c",
    metavar="EXPRESSION",
    help="Print the value of this expression instead of opening a prompt.",
)
@setting_option
def shell(url: str, browser: bool, robots: bool, code: str | None, settings: tuple[str, ...]) -> int:
    """Fetch a page, and open a Python prompt for it. The prompt is IPython if it is installed.

    Exits with 1 if the server does not respond.
    """
    expression = None if code is None else _compiled(code)
    with ShellSession(single_settings(settings, robots=robots, browser=browser)) as session:
        session.fetch(url)
        if expression is not None:
            return session.print_value(expression)
        session.interact()
    return 0


def _compiled(text: str) -> CodeType:
    try:
        return compile(text, "--code", "eval")
    except SyntaxError as error:
        raise UsageError(
            f"--code {text!r} is not an expression: {error.msg}",
            remedy="write one expression, such as 'response.status', or pass statements on standard input",
            field="--code",
        ) from None


class ShellSession:
    """A prompt with a fetched page. An event loop in a separate thread fetches the pages."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from skitter.request import Request
        from skitter.run.page_fetcher import PageFetcher

        self._loop = LoopThread("fetching")
        self._fetcher = PageFetcher(settings)
        self._names: dict[str, Any] = {"fetch": self.fetch, "view": self.view, "Request": Request}

    def __enter__(self) -> Self:
        self._loop.run(self._fetcher.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._fetcher.__aexit__())
        self._loop.stop()

    def fetch(self, request: Request | str) -> Response:
        """Fetch a page. Set ``response`` to the result and ``request`` to the request that was sent."""
        response = self._names["response"] = self._loop.run(self._fetcher.fetch(request))
        self._names["request"] = response.request
        return response

    def view(self, response: Response | None = None) -> bool:
        """Show a response (default: the last one) in a browser. Return whether there is a browser."""
        response = self._names["response"] if response is None else response
        suffix = ".html" if response.is_html else ".txt" if response.is_text else ".bin"
        with tempfile.NamedTemporaryFile(prefix="skitter-", suffix=suffix, delete=False) as file:
            file.write(response.body)
        return webbrowser.open(Path(file.name).as_uri())

    def print_value(self, expression: CodeType) -> int:
        """Print the value of an expression. Return the exit status of the command."""
        try:
            click.echo(eval(expression, self._names))  # noqa: S307 - the user's own code
        except SkitterError:
            raise
        except Exception as error:  # noqa: BLE001 - user code
            complain(f"{type(error).__name__}: {error}", "correct the expression")
            return FAILED
        return 0

    def interact(self) -> None:
        """Open the prompt."""
        banner = _BANNER.format(**self._names)
        if importlib.util.find_spec("IPython") is None:
            _PlainPrompt(self._names).interact(banner, exitmsg="")
            return
        ipython = importlib.import_module("IPython.terminal.embed")
        prompt = ipython.InteractiveShellEmbed(banner1=f"{banner}\n", user_ns=self._names, confirm_exit=False)
        prompt.set_custom_exc((SkitterError,), _show_error)
        prompt()


def _show_error(
    _prompt: object, _kind: type[SkitterError], error: SkitterError, *_: object, **__: object
) -> None:
    """Show an error of skitter as one line. IPython calls this function instead of printing a traceback."""
    complain(str(error), error.remedy)


class _PlainPrompt(code.InteractiveConsole):
    """Python's own prompt. It shows an error of skitter as one line."""

    def showtraceback(self) -> None:
        """Show the error of the last input."""
        error = sys.exc_info()[1]
        if isinstance(error, SkitterError):
            complain(str(error), error.remedy)
        else:
            super().showtraceback()
