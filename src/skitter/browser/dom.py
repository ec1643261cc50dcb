"""The final DOM of a page as HTML, including the contents of shadow roots and frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame, Page

_FRAMES_IN = """const framesIn = root => {
  const found = [...root.querySelectorAll('iframe, frame')];
  for (const element of root.querySelectorAll('*')) if (element.shadowRoot) found.push(...framesIn(element.shadowRoot));
  return found;
};
"""
"""A function that returns the frames of a document, including those in open shadow roots."""
_SERIALIZE = (
    f"""({{url, marker, filled}}) => {{
  {_FRAMES_IN}
"""
    r"""
  const doc = document, root = doc.documentElement;
  const meta = doc.querySelector('meta[http-equiv=refresh i]');
  const refresh = meta ? parseFloat(meta.content) <= 1 : false;
  const order = framesIn(doc), frames = order.length;
  let shadow = false;
  for (const element of doc.getElementsByTagName('*')) if (element.shadowRoot) { shadow = true; break; }
  const type = doc.doctype ? new XMLSerializer().serializeToString(doc.doctype) : '';
  if (!root) return {html: '', refresh, frames: 0};
  const plain = address => address.split('#')[0];
  const firstBase = doc.querySelector('base[href]'), base = plain(doc.baseURI);
  let expected = base;
  if (url && /^https?:/.test(base)) {
    try { expected = plain(new URL(firstBase ? firstBase.getAttribute('href') : '', url).href); } catch { expected = plain(url); }
  }
  const moved = expected !== base;
  if (url && !moved && !shadow && !filled.length) return {html: type + root.outerHTML, refresh, frames};
  const inFrame = new Map(filled.map(index => [index, marker + index + '.']));
  const addBase = made => {
    const element = doc.createElement('base');
    element.setAttribute('href', base);
    made.prepend(element);
  };
  const copyInto = (target, nodes) => { for (const node of nodes) { const made = copy(node); if (made) target.append(...made); } };
  const copy = (node) => {
    if (node.nodeType !== 1) return [node.cloneNode(true)];
    if (node.localName === 'slot' && node.getRootNode() instanceof ShadowRoot) {
      const box = doc.createDocumentFragment(), assigned = node.assignedNodes();
      copyInto(box, assigned.length ? assigned : node.childNodes);
      return [...box.childNodes];
    }
    if (node.localName === 'template') return [node.cloneNode(true)];
    const made = node.cloneNode(false);
    if (!url) {
      for (const name of ['href', 'src', 'action', 'formaction', 'poster']) {
        if (made.hasAttribute(name)) try { made.setAttribute(name, new URL(made.getAttribute(name), base).href); } catch { }
      }
    }
    copyInto(made, (node.shadowRoot || node).childNodes);
    if (moved && node === firstBase) made.setAttribute('href', base);
    if (moved && !firstBase && node === (doc.head || root)) addBase(made);
    const index = order.indexOf(node);
    if (index >= 0 && inFrame.has(index)) {
      const box = doc.createElement('div');
      box.setAttribute('data-frame', node.src || '');
      box.append(inFrame.get(index));
      return [made, box];
    }
    return [made];
  };
  return {html: url ? type + copy(root)[0].outerHTML : doc.body ? copy(doc.body)[0].innerHTML : '', refresh, frames};
}
"""
)
"""Returns a document as HTML, or without ``url`` the content of its body for the document around its frame.

``url``: URL by which a reader resolves the links of the document. ``filled``: indexes of the frames after which ``marker``, the
index and a full stop are inserted. No string is parsed here, because a policy of the site (Trusted Types) may forbid it.
"""
_INDEX = f"element => {{ {_FRAMES_IN} return framesIn(element.ownerDocument).indexOf(element); }}"
_FRAME_TIMEOUT = 2.0
"""Seconds to wait until all frames have loaded, and then for the content of each one."""
_FRAMES_AT_ONCE = 8
"""Number of frames that are read at a time, so that the time of a frame does not pass while others are read."""
_MAX_DEPTH = 4


async def final_dom(page: Page, session: CDPSession, url: str) -> tuple[str, bool]:
    """Return the HTML of a page, and whether a meta refresh is about to replace it.

    The content of an open shadow root replaces the content of its host, with the slots filled. The content of a frame
    follows the frame in an element ``<div data-frame=URL>``, with absolute links. ``url``: URL of the response. If links of
    the page have another base, because a script has changed the address of the page, a ``<base>`` names it.
    """
    found = await _serialized(session, url, {}, "")
    if found["frames"] and page.main_frame.child_frames:
        marker = f"skitter-frame-{uuid.uuid4().hex}-"
        await _wait_until_loaded(page.frames)
        contents = await _contents(page.main_frame, marker, asyncio.Semaphore(_FRAMES_AT_ONCE), 1)
        if contents:
            found = await _serialized(session, url, contents, marker)
            return _fill(found["html"], contents, marker), found["refresh"]
    return found["html"], found["refresh"]


async def _serialized(session: CDPSession, url: str, contents: dict[int, str], marker: str) -> Any:
    # Playwright's Page.evaluate counts as a user gesture, after which the page could open windows for five seconds.
    arguments = json.dumps({"url": url, "marker": marker, "filled": list(contents)})
    reply = await session.send(
        "Runtime.evaluate", {"expression": f"({_SERIALIZE})({arguments})", "returnByValue": True}
    )
    if "exceptionDetails" in reply:
        details = reply["exceptionDetails"]
        raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
    return reply["result"]["value"]


def _fill(html: str, contents: dict[int, str], marker: str) -> str:
    """Return HTML with the contents of its frames in place of their markers."""
    return re.sub(marker + r"(\d+)\.", lambda found: contents.get(int(found[1]), ""), html)


async def _wait_until_loaded(frames: Sequence[Frame]) -> None:
    loading = (frame.wait_for_load_state("load") for frame in frames[1:])  # the first one is the page itself
    with contextlib.suppress(TimeoutError):  # what has arrived is read
        async with asyncio.timeout(_FRAME_TIMEOUT):
            await asyncio.gather(*loading, return_exceptions=True)


async def _contents(frame: Frame, marker: str, slots: asyncio.Semaphore, depth: int) -> dict[int, str]:
    """Return the HTML of each frame within a frame, by its index."""
    results = await asyncio.gather(
        *(_content(child, marker, slots, depth) for child in frame.child_frames), return_exceptions=True
    )
    return dict(result for result in results if isinstance(result, tuple) and result[0] >= 0)


async def _content(frame: Frame, marker: str, slots: asyncio.Semaphore, depth: int) -> tuple[int, str]:
    contents: dict[int, str] = {}
    if frame.child_frames and depth < _MAX_DEPTH:
        contents = await _contents(frame, marker, slots, depth + 1)
    async with slots, asyncio.timeout(_FRAME_TIMEOUT):  # a frame may be closed
        element = await frame.frame_element()
        index: int = await element.evaluate(_INDEX)
        found = await frame.evaluate(_SERIALIZE, {"url": "", "marker": marker, "filled": list(contents)})
    return index, _fill(found["html"], contents, marker)
