"""Optional frontiers whose queue is in a message broker: NSQ (``nsq:``) or NATS JetStream (``nats:``).

The broker carries requests between workers. A second frontier, the *state* (Redis or SQLite), keeps everything that a
broker cannot know, and makes all decisions. ``docs/design/brokers.md`` explains the protocol. The rest of skitter does not
import this package; the entry points of the group ``skitter.frontiers`` name :mod:`skitter.brokers.factory`.

To support another broker:

1. If workers have to ask for messages, implement :class:`~skitter.brokers.polling.PolledQueue`, which
   :class:`~skitter.brokers.polling.PollingBroker` turns into a broker. Otherwise, implement
   :class:`~skitter.brokers.contract.Broker`, and :class:`~skitter.brokers.contract.Delivery` for its messages.
   ``jetstream.py`` is an example in one file. The docstrings of the protocols say what each method promises, and
   what happens in a crash. At-least-once delivery is enough: order, delays and exactly-once delivery are not required.
2. Describe its URLs with :class:`~skitter.brokers.address.UrlRules`, and write a factory::

       def my_frontier(url: str, context: FrontierContext) -> Frontier:
           return make_broker_frontier(url, context, RULES, MyBroker)

   :func:`~skitter.brokers.factory.make_broker_frontier` calls ``MyBroker(address, lease_seconds)`` once for each queue.
3. Offer the factory as an entry point, named after the scheme of the URL::

       [project.entry-points."skitter.frontiers"]
       my = "my_package:my_frontier"

4. Run the contract suite on it: add a subclass of ``OverBroker`` in ``tests/contract/frontier_backends.py``.
"""
