"""A newsletter from several feeds: the posts since a day, newest first. ``python newsletter.py 2026-11-25 FEED ...``."""

import sys

import skitter


class Feeds(skitter.Spider):
    def parse(self, response):
        for entry in response.feed():
            if entry.published >= self.since:
                yield {"url": entry.url, "title": entry.title, "published": entry.published}


def newsletter(since, *feeds):
    """Return the posts as Markdown. A post of several feeds appears once."""
    items = skitter.iter_items(Feeds, arguments={"start_urls": feeds, "since": since})
    posts = {item["url"]: item for item in items}
    newest = sorted(posts.values(), key=lambda post: (post["published"], post["url"]), reverse=True)
    return "\n".join(f"- {post['published'][:10]} [{post['title']}]({post['url']})" for post in newest)


if __name__ == "__main__":
    print(newsletter(*sys.argv[1:]))
