"""What the answer about shared nodes rests on, and what limits it."""

from collections.abc import Iterator

from capplan.planning.shared_fleet.result import SharedFleet, SharedPool


def warnings_of(fleet: SharedFleet) -> Iterator[str]:
    """Yield what a reader should know before relying on a shared fleet."""
    for pool in fleet.pools:
        yield from _of_pool(pool)
    by_gpu: dict[str, list[SharedPool]] = {}
    for pool in fleet.pools:
        by_gpu.setdefault(pool.gpu, []).append(pool)
    for gpu, alike in by_gpu.items():
        if len(alike) > 1:
            places = " and ".join(pool.name for pool in alike)
            yield (
                f"{gpu} is planned on {places}, which share no nodes; plan with the "
                "same --provider or --nodes to share"
            )
    for llm in fleet.llms:
        if llm.curve is None:
            yield f"{llm.name}: as many replicas at all hours: {llm.why_constant}"
        elif llm.curve.is_short:
            yield (
                f"{llm.name}: its trace shows {llm.curve.days_text}, not a week; "
                "peaks of other days are not in the joint peak"
            )
    if sum(llm.curve is not None for llm in fleet.llms) > 1:
        yield (
            "hour 0 is each trace's first request, later by --shift; the joint peak "
            "holds where these fall on the same hour of the same day"
        )


def _of_pool(pool: SharedPool) -> Iterator[str]:
    if pool.is_size_assumed:
        yield (
            f"{pool.gpu}: node size not known, {pool.gpus_per_node} GPUs a node "
            "assumed; plan with --nodes or --provider for nodes with a price"
        )
    if pool.usd_per_gpu_h is None:
        yield f"{pool.gpu}: planned without a price, so its nodes are not in the bill"
    price = pool.tenants[0].pool.price
    if price is not None and price.kind.startswith("spot"):
        yield (
            f"{pool.name}: spot nodes are taken back, often many at once; the spares "
            "are for failures alone"
        )
    if pool.is_doubtful:
        yield f"{pool.name}: its price is a guess, old or undated"
    for tenant in pool.tenants:
        if tenant.pool.replica_count == 1:
            yield (
                f"{tenant.name}: one replica: if its node fails, it is down until a "
                "spare has loaded it"
            )
    more = len(pool.peak_map.nodes) - pool.peak_map.nodes_without_rule
    if more > 0:
        plural = "node" if more == 1 else "nodes"
        yield (
            f"{pool.name}: two failure domains for each LLM cost {more} {plural} at "
            f"the joint peak ({pool.peak_map.nodes_without_rule} would hold the "
            "replicas)"
        )
