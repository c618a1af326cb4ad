#!/bin/sh
# Apache ZooKeeper's script of this name, as far as the pages use it: `zkServer.sh start-foreground FILE`.
# The server is the one in PySpark's jars.
[ "$1" = start-foreground ] || { echo "usage: zkServer.sh start-foreground FILE" >&2; exit 2; }
echo "Using config: $2" >&2
jars=$(python -c 'from ledgerlog_spark.local.zookeeper import find_jars; print(*find_jars(), sep=":")')
exec java -Xmx128m -Dlog4j.level=INFO -Dzookeeper.admin.enableServer=false -cp "$jars" \
    org.apache.zookeeper.server.quorum.QuorumPeerMain "$2"
