"""Downloads and builds the servers that are not packages, before the tests, which have time limits.

Usage: ``PYTHONPATH=tests python -m services.prepare``

"""

from services.nsq_servers import nsq_program
from services.store_servers import ferretdb_program, java_folder

if __name__ == "__main__":
    java_folder()
    nsq_program("nsqd")
    ferretdb_program()
