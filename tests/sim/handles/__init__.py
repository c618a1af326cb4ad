"""Clients as they ship, over a simulated network, bookies and metadata store.

Handles, followers, announcers, hosts of machines, links and connections of the binary protocol are
those of the package; the stores are the shipped ones over a tree whose requests take time and get
lost. What is simulated is the loop's clock, the network, the bookies' storage, and their control
service, whose gRPC needs real sockets (tests/contract/test_transport.py runs that).
"""
