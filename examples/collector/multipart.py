"""Send a form that contains a file."""

import sys

from skitter import Collector
from skitter.frontends.collector import FormFile

crawler = Collector()


@crawler.on_response
def stored(response):
    print(response.json())


if __name__ == "__main__":
    picture = FormFile("dot.gif", b"GIF89a\x01\x00\x01\x00", "image/gif")
    crawler.post_multipart(sys.argv[1] + "upload", {"title": "A dot", "picture": picture})
    crawler.run()
