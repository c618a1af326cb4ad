"""The shipped client over a simulated network, bookies and metadata store.

Handles, followers, announcers, hosts of machines, links and connections of the binary protocol are
those of the package. The stores are also the shipped ones, over a tree whose requests take time and
can be lost. The simulated parts are the clock of the loop, the network, the storage of the bookies,
and their control service. gRPC needs real sockets, so tests/contract/test_transport.py tests it.
"""
