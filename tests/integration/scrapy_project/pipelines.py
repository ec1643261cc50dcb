from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem


class Checked:
    def process_item(self, item):
        adapter = ItemAdapter(item)
        if adapter.get("drop"):
            raise DropItem("not wanted")
        if adapter.get("broken"):
            raise ValueError("a pipeline that fails")
        adapter["checked"] = True
        return item
