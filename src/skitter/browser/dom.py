"""The final DOM of a page as HTML, including the contents of shadow roots and frames."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame, Page

_SERIALIZE = r"""
(children) => {
  const doc = document, root = doc.documentElement;
  const meta = doc.querySelector('meta[http-equiv=refresh i]');
  const refresh = meta ? parseFloat(meta.content) <= 1 : false;
  const frames = doc.querySelectorAll('iframe, frame').length;
  let shadow = false;
  for (const element of doc.getElementsByTagName('*')) if (element.shadowRoot) { shadow = true; break; }
  const type = doc.doctype ? new XMLSerializer().serializeToString(doc.doctype) : '';
  if (!root) return {html: '', refresh, frames: 0};
  if (!shadow && !(children && children.length)) return {html: type + root.outerHTML, refresh, frames};
  const inner = new Map(children || []);
  const order = [...doc.querySelectorAll('iframe, frame')];
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
    copyInto(made, (node.shadowRoot || node).childNodes);
    const index = order.indexOf(node);
    if (index >= 0 && inner.has(index)) {
      const box = doc.createElement('div'), parsed = new DOMParser().parseFromString(inner.get(index), 'text/html');
      box.setAttribute('data-frame', node.src || '');
      box.append(...parsed.body.childNodes);
      return [made, box];
    }
    return [made];
  };
  return {html: type + copy(root)[0].outerHTML, refresh, frames};
}
"""
_INDEX = "element => [...element.ownerDocument.querySelectorAll('iframe, frame')].indexOf(element)"
_FRAME_TIMEOUT = 2.0
_MAX_DEPTH = 4


async def final_dom(page: Page, session: CDPSession) -> tuple[str, bool]:
    """Return the HTML of a page, and whether a meta refresh is about to replace it.

    The content of an open shadow root replaces the content of its host, with the slots filled. The content of a frame
    follows the frame in an element ``<div data-frame=URL>``.
    """
    found = await _serialized(session, None)
    if found["frames"] and page.main_frame.child_frames:
        children = await _contents(page.main_frame, 1)
        if children:
            found = await _serialized(session, children)
    return found["html"], found["refresh"]


async def _serialized(session: CDPSession, children: list[tuple[int, str]] | None) -> Any:
    # Playwright's Page.evaluate counts as a user gesture, after which the page could open windows for five seconds.
    expression = f"({_SERIALIZE})({json.dumps(children)})"
    reply = await session.send("Runtime.evaluate", {"expression": expression, "returnByValue": True})
    if "exceptionDetails" in reply:
        raise RuntimeError(reply["exceptionDetails"].get("text", "the document cannot be read"))
    return reply["result"]["value"]


async def _contents(frame: Frame, depth: int) -> list[tuple[int, str]]:
    """Return the index and the HTML of each frame within a frame."""
    results = await asyncio.gather(
        *(_content(child, depth) for child in frame.child_frames), return_exceptions=True
    )
    return [result for result in results if isinstance(result, tuple) and result[0] >= 0]


async def _content(frame: Frame, depth: int) -> tuple[int, str]:
    async with asyncio.timeout(_FRAME_TIMEOUT):  # a frame may be busy or closed
        await frame.wait_for_load_state("load")
        element = await frame.frame_element()
        index: int = await element.evaluate(_INDEX)
        children: list[Any] = (
            await _contents(frame, depth + 1) if frame.child_frames and depth < _MAX_DEPTH else []
        )
        found = await frame.evaluate(_SERIALIZE, children)
        return index, found["html"]
