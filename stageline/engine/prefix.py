"""The prefix cache of one replica (rule 8): which blocks of prompts are resident, who uses them, which go first.

A node of the trie is one block of identity (a hash id of the workload, some KV blocks long) behind its parent's chain.
Its KV belongs to the node, not to a request, so that it counts once in every ledger however many requests share it. A
state snapshot is read only when a request is admitted: it can be given up while its block is in use.
"""

import heapq
from collections.abc import Sequence as Seq

from stageline.engine.mirror import KvMirror

SWEEP_ENTRIES = 4096  # of the heap of idle blocks, before stale ones are swept out
Grant = tuple[int, int, int]  # owner, blocks added, states added


class Node:
    """A resident block. Ledgers know it as `owner` and its snapshot as `owner` - 1: negative, unlike a request."""

    __slots__ = ("children", "depth", "key", "last_use", "owner", "parent", "snapshot", "users")

    def __init__(self, key: int, parent: "Node | None", owner: int) -> None:
        self.key, self.parent, self.owner = key, parent, owner
        self.depth: int = parent.depth + 1 if parent else 0
        self.children: dict[int, Node] = {}
        self.users = 0  # running sequences that hold it
        self.last_use = 0
        self.snapshot = False  # whether the linear layers' state after this block is kept too


class PrefixCache:
    """Longest resident chains, reference counts, and eviction by last use, deepest in the chain first.

    `node_tokens` is what one identity stands for. With linear layers a hit is only worth as far as a state was kept:
    `snapshot_nodes` is the distance of snapshots, in nodes; 0 when the model has no state.
    """

    def __init__(self, mirror: KvMirror, node_tokens: int, snapshot_nodes: int) -> None:
        self.mirror = mirror
        self.node_tokens = node_tokens
        self.node_blocks = mirror.blocks_for(node_tokens)
        self.snapshot_nodes = snapshot_nodes
        self.evicted: list[int] = []  # owners whose KV goes back with the next microbatch
        self.evicted_blocks = 0
        self._root = Node(0, None, 0)
        self._made = 0
        self._tick = 0
        # Heap of what may be given up: last use, -depth, owner (a snapshot's before its block's); some are stale.
        self._idle: list[tuple[int, int, int, Node]] = []
        self._most_entries = SWEEP_ENTRIES
        self._idle_nodes = 0
        self._snapshots = 0
        self._fresh: list[Node] = []  # their snapshots are granted by the microbatch that is being formed

    def match(self, hash_ids: Seq[int], prompt_tokens: int) -> list[Node]:
        """The longest usable resident chain of full blocks; leaves at least one token of the prompt to compute."""
        chain: list[Node] = []
        node = self._root
        for key in hash_ids[: (prompt_tokens - 1) // self.node_tokens]:
            found = node.children.get(key)
            if found is None:
                break
            chain.append(found)
            node = found
        while self.snapshot_nodes and chain and not chain[-1].snapshot:
            chain.pop()
        return chain

    def hold(self, node: Node) -> None:
        """One more sequence uses it."""
        if not node.users:
            self._idle_nodes -= 1
        node.users += 1

    def let_go(self, chain: Seq[Node]) -> None:
        """A sequence no longer uses these; what nobody uses stays until room is needed."""
        self._tick += 1
        for node in chain:
            node.users -= 1
            node.last_use = self._tick
            self._idle_nodes += not node.users
            self._offer(node)
        if len(self._idle) > self._most_entries:
            self._sweep()

    def extend(self, chain: list[Node], key: int, request: int, grants: list[Grant]) -> None:
        """The next block of a prompt has been dispatched: it can be hit from now on. Appends it to `chain`, held.

        Its KV passes from the request to the node; where the same block is resident already, the request's goes back.
        """
        parent = chain[-1] if chain else self._root
        node = parent.children.get(key)
        grants.append((request, -self.node_blocks, 0))
        if node is not None:
            self.hold(node)
            self.mirror.take(-self.node_blocks, 0)
        else:
            self._made += 2
            node = parent.children[key] = Node(key, parent, 1 - self._made)
            node.users = 1
            grants.append((node.owner, self.node_blocks, 0))
            if self.snapshot_nodes and node.depth % self.snapshot_nodes == 0:
                self._keep_state(node, grants)
        chain.append(node)

    def nodes(self) -> list[Node]:
        """All resident blocks, found by walking; for the laws."""
        nodes, stack = [], list(self._root.children.values())
        while stack:
            nodes.append(stack.pop())
            stack.extend(nodes[-1].children.values())
        return nodes

    def resident(self) -> tuple[int, int]:
        """KV blocks and states of all nodes, counted one by one; for the laws."""
        nodes = self.nodes()
        return len(nodes) * self.node_blocks, sum(n.snapshot for n in nodes)

    def room(self, blocks: int, states: int) -> bool:
        """Whether that much more fits, after evicting as little as needed; nothing is evicted if it would not help."""
        mirror = self.mirror
        if mirror.fits(blocks, states):
            return True
        if not mirror.fits(blocks - self._idle_nodes * self.node_blocks, states - self._snapshots):
            return False
        while not mirror.fits(blocks, states):
            self.evict_one()
        return True

    def evict_one(self) -> bool:
        """Give up the block or snapshot that was used least recently, deepest first; False: all is in use."""
        while self._idle:
            last_use, _, owner, node = heapq.heappop(self._idle)
            if node.parent is None or node.last_use != last_use:
                continue  # gone, or used since
            if owner != node.owner:
                if node.snapshot:
                    self._drop_state(node)
                    return True
            elif not node.users and not node.children:  # otherwise offered again when that ends
                self._remove(node, node.parent)
                return True
        return False

    def take_evicted(self) -> tuple[int, ...]:
        """Owners whose KV goes back with the microbatch that leaves now; what it grants may be given up later."""
        for node in self._fresh:
            self._snapshots += 1
            self._offer(node)
        evicted, self.evicted, self._fresh = tuple(self.evicted), [], []
        return evicted

    def clear(self) -> None:
        """Give up everything: the run is over and nobody holds anything."""
        while self.evict_one():
            pass

    def _keep_state(self, node: Node, grants: list[Grant]) -> None:
        if self.room(0, 1):
            node.snapshot = True
            node.last_use = self._tick
            self.mirror.take(0, 1)
            grants.append((node.owner - 1, 0, 1))
            self._fresh.append(node)

    def _drop_state(self, node: Node) -> None:
        node.snapshot = False
        self._snapshots -= 1
        self.mirror.take(0, -1)
        self.evicted.append(node.owner - 1)

    def _remove(self, node: Node, parent: Node) -> None:
        if node.snapshot:
            self._drop_state(node)
        del parent.children[node.key]
        node.parent = None
        self.mirror.take(-self.node_blocks, 0)
        self._idle_nodes -= 1
        self.evicted.append(node.owner)
        self.evicted_blocks += 1
        if parent is not self._root:
            self._offer(parent)

    def _sweep(self) -> None:
        """Take stale entries out of the heap: what is used again and again without an eviction would fill it."""
        self._idle = list({e[:3]: e for e in self._idle if e[3].parent and e[3].last_use == e[0]}.values())
        heapq.heapify(self._idle)
        self._most_entries = max(SWEEP_ENTRIES, 2 * len(self._idle))

    def _offer(self, node: Node) -> None:
        if node.snapshot:
            heapq.heappush(self._idle, (node.last_use, -node.depth, node.owner - 1, node))
        if not node.users and not node.children:
            heapq.heappush(self._idle, (node.last_use, -node.depth, node.owner, node))
