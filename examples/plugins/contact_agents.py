"""``-s user_agents=contact:MAIL``: a crawler that names itself and a contact address."""

from skitter.errors import SettingsError


class ContactAgents:
    def __init__(self, context):
        self.mail = context.rest
        if "@" not in self.mail:
            raise SettingsError("contact needs an address", remedy="write user_agents=contact:me@example.org")

    def headers(self, request):
        return {"User-Agent": f"research-crawler (+mailto:{self.mail})", "From": self.mail}
