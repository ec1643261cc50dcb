"""A shop whose pages are empty without JavaScript, for trying browser pages."""

from __future__ import annotations

import json
from urllib.parse import parse_qs

from skitter.testing.answer import Answer, Visit

_BATCH = 6
_TEXT = "".join(f"<p>Paragraph {number} of a page that its server has rendered.</p>" for number in range(40))
_SHELL = """<!doctype html><title>Shop</title><div id="app"></div><script>
const app = document.getElementById('app');
%s
</script>"""
_LIST = """
let shown = 0;
const more = async () => {
  const products = await (await fetch('/api/products?from=' + shown)).json();
  for (const one of products) app.insertAdjacentHTML('beforeend', `<p><a href="/product/${one.id}">${one.name}</a></p>`);
  shown += products.length;
  if (shown >= %d) button.remove();
};
const button = document.createElement('button');
button.id = 'more'; button.textContent = 'More'; button.onclick = more;
document.body.append(button);
more();
"""
_PRODUCT = """
const id = location.pathname.split('/').pop();
fetch('/api/products/' + id).then(answer => answer.json()).then(one => {
  app.innerHTML = `<h1>${one.name}</h1><p class="price">${one.price}</p>`;
});
"""


class JavaScriptSite:
    """A list with a "More" button, and a page for each of its ``products``. ``/about`` and ``/plain/N`` need no JavaScript."""

    def __init__(self, products: int = 24) -> None:
        self._products = products

    def __call__(self, visit: Visit) -> Answer:  # noqa: PLR0911 - one for each kind of page
        """Answer a request."""
        path = visit.path
        if path == "/":
            return Answer((_SHELL % (_LIST % self._products) + '<a href="/about">About</a>').encode())
        if path == "/about":
            return Answer(
                b"<!doctype html><title>About</title><h1>About</h1><p>A page that needs no JavaScript.</p>"
            )
        number = path.rpartition("/")[2]
        if path.startswith("/plain/"):
            return Answer(f"<!doctype html><title>Plain</title><h1>Product {number}</h1>{_TEXT}".encode())
        if path.startswith("/product/") and self._exists(number):
            return Answer((_SHELL % _PRODUCT).encode())
        if path.startswith("/api/products/") and self._exists(number):
            return _json(_product(int(number)))
        if path == "/api/products":
            first = int(parse_qs(visit.target.partition("?")[2]).get("from", ["0"])[0])
            return _json([_product(product) for product in range(first, min(first + _BATCH, self._products))])
        return Answer(b"<h1>Not found</h1>", status=404)

    def _exists(self, number: str) -> bool:
        return number.isdigit() and int(number) < self._products


def _product(number: int) -> dict[str, object]:
    return {"id": number, "name": f"Product {number}", "price": f"{number}.50 €"}


def _json(value: object) -> Answer:
    return Answer(json.dumps(value).encode(), content_type="application/json")
