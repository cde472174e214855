"""A budget: demand by the hour, growth, and the cheapest way to pay for the nodes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from capplan.deployment.changes import parse_loss_per_month
from capplan.deployment.pools import Pool
from capplan.errors import InputError, collected_warnings, warn
from capplan.planning.budget.alternatives import alternatives, autoscaled, ways_to_pay
from capplan.planning.budget.assumptions import budget_assumptions
from capplan.planning.budget.fleets import fleet_rows
from capplan.planning.budget.kept_months import (
    lengths_on_sale,
    peaks_of,
    refuse_with_least_months,
    rentals,
)
from capplan.planning.budget.power import power_of
from capplan.planning.budget.replicas_by_rate import ReplicasByRate
from capplan.planning.budget.result import Alternative, Budget, FleetRow, Month
from capplan.planning.budget.scenario_rows import priced, scenario_rows
from capplan.planning.budget.scenarios import AS_ASKED, Scenario
from capplan.planning.budget.settings import STATIC, BudgetSettings
from capplan.planning.budget.traffic import curve_of, rates_to_simulate
from capplan.planning.budget.warnings import warn_of_budget
from capplan.planning.configure.deployments import cold_start_of
from capplan.planning.evaluate.inputs import Progress, unseen
from capplan.planning.load.traffic import read_requests
from capplan.planning.money.bill import Held, MonthBill, Rent, held_by, month_bill, uses
from capplan.planning.money.commitments import Hours, Term, parse_contract
from capplan.planning.money.cost import HOURS_PER_MONTH, warn_of_doubts
from capplan.planning.money.gpu_choices import NOT_BOUGHT
from capplan.planning.money.ladder import Ladder, Quota, SpotTerms, ladder
from capplan.planning.money.node_hours import paid_hours
from capplan.planning.money.node_prices import node_prices
from capplan.planning.money.nodes_to_buy import NodesToBuy, nodes_to_buy
from capplan.planning.money.owned import kwh, owned_node, parse_owned
from capplan.planning.money.purchase_texts import (
    DEFAULT_COMMITMENTS,
    parse_commit,
    parse_quota,
)
from capplan.planning.money.spot import (
    INTERRUPTION_PER_MONTH,
    availability,
    most_spot,
    spot_nodes,
)
from capplan.planning.plan.demand import Plans, planned_at
from capplan.units import parse_duration_s
from capplan.workload.arrivals import MOST_RATE_PER_S

DRAIN_S = 30.0
"""From a node's last hour until its requests have ended; assumed: the grace that
Kubernetes gives a pod by default. [s]"""


def budget(settings: BudgetSettings, progress: Progress | None = None) -> Budget:
    """Return nodes by hour and month, the commitments to buy, and what all costs.

    Rates of the hours, of a trace or a typical week, grow month by month; replicas at
    each are simulated at the quietest hour and at the peaks of some months, and by the
    demand law in between. The ladder of commitments is a linear program.
    """
    settings = settings.dated()
    with collected_warnings() as texts:
        show = progress or unseen
        plans: Plans = {}

        def budgeted(asked: BudgetSettings, show: Progress, under: Scenario) -> Budget:
            return _Work(plans, asked, show, under).result()

        result = budgeted(settings, show, AS_ASKED)
        rows = scenario_rows(settings, result, budgeted, show)
    return replace(result, scenarios=rows, warnings=tuple(texts))


def _rank(found: Budget) -> tuple[float, float]:
    """Order by dollars, then by those of nodes beside those that may be committed."""
    beside = sum(month.bill.usd_beside for month in found.months)
    return round(found.usd, 2), round(beside, 2)


class _Work:
    """The steps of a budget."""

    def __init__(
        self, plans: Plans, settings: BudgetSettings, show: Progress, under: Scenario
    ) -> None:
        self._plans, self._settings = plans, settings
        self._show, self._under = show, under
        slo = settings.objective()
        if slo is None:
            raise InputError("no SLO; give --slo such as ttft=1s,tpot=30ms")
        self._slo = slo
        self._contracts = [parse_contract(text) for text in settings.contract]
        self._quota = parse_quota(settings.quota) if settings.quota else Quota()
        show("reading the requests")
        self._trace = read_requests(settings)
        self._curve = curve_of(self._trace, settings).scaled(under.scale)
        growth, months = settings.growing, range(1, settings.horizon_months + 1)
        self._factors = [growth.work_factor(month) for month in months]
        self._tokens = [growth.token_factor(month) for month in months]
        most_per_s = self._curve.busiest_per_s * max(self._factors)
        if most_per_s > MOST_RATE_PER_S:
            raise InputError(
                f"growth {settings.growth}: {most_per_s:.3g} requests/s within "
                f"{settings.horizon_months} months; expected at most "
                f"{MOST_RATE_PER_S:,.0f}"
            )

    def result(self) -> Budget:
        """Return the budget."""
        settings = self._settings
        rates = rates_to_simulate(self._curve, self._factors, settings.anchors)
        candidates, notes = planned_at(rates, settings.at_rate, self._show, self._plans)
        for note in notes:
            if NOT_BOUGHT in note:
                continue  # of a plan; a budget looks at offers of other kinds too
            warn(note)
        counts = [row.replica_count for row in candidates]
        self._by_rate = ReplicasByRate.of(np.array(rates), np.array(counts))
        run = candidates[-1].run
        assert run is not None
        self._launch = candidates[-1].launch
        self._cold_start_s = cold_start_of(settings, run.configuration)
        busiest = np.array([self._curve.busiest_per_s * self._factors[0]])
        pool = Pool(run.configuration, int(self._by_rate.replicas(busiest)[0]))
        by_node = bool(self._contracts or settings.quota or settings.spot_share)
        self._show("choosing commitments")
        found, errors = [], []
        for nodes in nodes_to_buy(pool, mixed=not by_node):
            try:
                self._buy(nodes)
                found.append((self._budgeted(), nodes))
            except InputError as error:
                errors.append(error)
        if not found:
            raise errors[0]
        able = [row for row in found if row[0].months] or found[:1]
        best, nodes = min(able, key=lambda row: _rank(row[0]))
        self._buy(nodes)
        if (price := self._configuration.price) is not None:
            warn_of_doubts(self._configuration.gpu, [price])
        replicas = self._by_rate.replicas(self._curve.peak_per_s * max(self._factors))
        peak = int(self._with_spares(self._buys.nodes(replicas)).max())
        warn_of_budget(settings, self._prices, self._curve, self._rent, peak)
        return self._with_fleets(best, [row.alternatives for row, _ in able])

    def _buy(self, nodes: NodesToBuy) -> None:
        """Take what is bought, and what it costs."""
        settings, self._buys = self._settings, nodes
        self._configuration = nodes.configuration
        texts = settings.commit or DEFAULT_COMMITMENTS
        wishes = [wish for text in texts if (wish := parse_commit(text))]
        prices = node_prices(settings, self._configuration, wishes)
        self._prices = priced(prices, self._under.price)
        refuse_with_least_months(settings, self._prices)
        self._rent = self._rented()
        gpu, self._owned = self._configuration.gpu, None
        if settings.owned is not None:
            self._owned = owned_node(parse_owned(settings.owned), gpu, settings.wacc)
        self._power = power_of(gpu, self._prices, self._owned, settings.grid)

    def _budgeted(self) -> Budget:
        """Return the budget on the nodes bought, without fleets on the trace."""
        replicas = [
            self._by_rate.replicas(self._curve.peak_per_s * factor)
            for factor in self._factors
        ]
        nodes = [self._with_spares(self._buys.nodes(each)) for each in replicas]
        static = [Hours.of(np.full(1, each.max())) for each in replicas]
        scheduled = [self._paid(each) for each in replicas]
        wanted = static if self._settings.fleet == STATIC else scheduled
        found = self._empty()
        hours = self._hours(wanted)
        spot = self._spot_terms(hours)
        sells = bool(self._prices.terms)
        reason = self._quota.refusal(hours, self._fixed(), spot, sells=sells)
        if reason:
            return replace(found, infeasible_reason=reason)
        terms = self._prices.terms
        held, bills, chosen = self._paid_by(wanted, terms, self._quota, spot)
        months = [
            self._month(bill, each, paid, held)
            for bill, each, paid in zip(bills, nodes, hours, strict=True)
        ]

        def bills_of(replicas: Sequence[Hours], of: Sequence[Term]) -> list[MonthBill]:
            return self._paid_by(replicas, of, Quota(), None)[1]

        return replace(
            found,
            months=tuple(months),
            commitments=tuple(uses(held, bills, self._prices.usd_per_node_h)),
            alternatives=alternatives(
                bills_of, static, scheduled, months, self._prices, self._owned
            ),
            ways=ways_to_pay(
                self._prices, self._rent, self._owned, hours, self._settings.wacc
            ),
            largest_fraction=chosen.largest_fraction,
        )

    def _with_fleets(
        self, found: Budget, options: Sequence[Sequence[Alternative]]
    ) -> Budget:
        """Return the budget with fleets, and each alternative on its cheapest nodes."""
        if not found.months:
            return found
        rows = [
            min(rows, key=lambda row: row.usd) for rows in zip(*options, strict=True)
        ]
        fleets: tuple[FleetRow, ...] = ()
        if self._under == AS_ASKED and not self._prices.min_months:
            fleets = fleet_rows(
                self._settings,
                self._trace,
                self._curve,
                self._by_rate.replicas(self._curve.peak_per_s),
                self._configuration,
                self._prices,
                self._show,
            )
        others = (*rows, *autoscaled(fleets, rows[0]))
        return replace(found, fleets=fleets, alternatives=others)

    def _empty(self) -> Budget:
        """Return the budget without its months."""
        budget = Budget(
            self._settings,
            self._configuration,
            self._slo,
            self._trace.class_names,
            self._trace.source,
            self._curve,
            self._by_rate,
            self._prices,
            self._rent,
            self._power,
            self._cold_start_s,
            owned=self._owned,
            launch=self._launch,
        )
        return replace(budget, assumptions=budget_assumptions(budget, DRAIN_S))

    def _with_spares(self, nodes: np.ndarray) -> np.ndarray:
        """Return nodes with the spares, and at least as many as must be rented."""
        return np.maximum(nodes + self._settings.spares, self._prices.min_nodes)

    def _paid(self, replicas: np.ndarray) -> Hours:
        """Return the replicas that are paid, of those of each hour."""
        step_s = self._prices.billing_step_s
        return paid_hours(replicas, self._cold_start_s, DRAIN_S, step_s)

    def _hours(self, replicas: Sequence[Hours]) -> list[Hours]:
        """Return the nodes that are paid, of the replicas of each month."""
        return [
            Hours.of(self._with_spares(self._buys.nodes(each.nodes)), each.hours)
            for each in replicas
        ]

    def _fixed(self) -> list[int]:
        """Return the nodes of each month that contracts hold."""
        return [
            sum(each.nodes for each in self._contracts if month <= each.until_month)
            for month in range(1, self._settings.horizon_months + 1)
        ]

    def _rented(self) -> Rent:
        """Return what nodes that are not committed cost."""
        settings, prices = self._settings, self._prices
        rent = Rent(
            prices.usd_per_node_h,
            on_demand_quota=self._quota.on_demand,
            least_usd_per_month=prices.least_usd_per_month,
        )
        if settings.spot_share == 0:
            return rent
        offer, usd_per_gpu_h = prices.spot, settings.spot_price
        if usd_per_gpu_h is None and offer is not None:
            usd_per_gpu_h = offer.usd_per_gpu_h
        if usd_per_gpu_h is None:
            raise InputError(
                f"no spot price of {self._configuration.gpu or 'these GPUs'} at "
                f"{prices.provider or 'its provider'} is known; give --spot-price "
                "DOLLARS"
            )
        if usd_per_gpu_h >= prices.usd_per_gpu_h:
            raise InputError(
                f"spot at ${usd_per_gpu_h:g} per GPU-hour is not below the price on "
                f"demand, ${prices.usd_per_gpu_h:g}; leave out --spot-share"
            )
        per_month = INTERRUPTION_PER_MONTH
        if settings.spot is not None:
            per_month = parse_loss_per_month(settings.spot)
        elif offer is not None and offer.interruption_per_month is not None:
            per_month = offer.interruption_per_month
        most = 1.0 if offer is None or offer.max_share is None else offer.max_share
        return_s = self._cold_start_s
        if settings.spot_return is not None:
            return_s = parse_duration_s(settings.spot_return)
        return replace(
            rent,
            spot=usd_per_gpu_h * prices.gpus_per_node,
            spot_share=min(settings.spot_share, most),
            spot_there=availability(per_month, return_s),
            spot_quota=self._quota.spot,
        )

    def _spot_terms(self, wanted: Sequence[Hours]) -> SpotTerms | None:
        """Return spot as the ladder counts it: at the price of a busy hour's nodes."""
        rent, most = self._rent, max(hours.most for hours in wanted)
        needed = most_spot(rent.spot_share, most)
        if rent.spot is None or needed == 0:
            return None
        paid = spot_nodes(needed, rent.spot_there)
        return SpotTerms(rent.spot * paid / needed, rent.spot_share)

    def _paid_by(
        self,
        wanted: Sequence[Hours],
        terms: Sequence[Term],
        quota: Quota,
        spot: SpotTerms | None,
    ) -> tuple[list[Held], list[MonthBill], Ladder]:
        """Return the commitments that cost least, and the bills with them.

        Of the replicas ``wanted`` in each month.
        """
        beside = [self._buys.beside_usd(each) * self._under.price for each in wanted]
        wanted = self._hours(wanted)
        kept = lengths_on_sale(self._prices, len(wanted))
        if kept:
            quota = Quota(on_demand=0)
        chosen = ladder(
            peaks_of(wanted) if kept else wanted,
            [*terms, *kept],
            self._rent.on_demand,
            fixed=self._fixed(),
            spot=spot,
            quota=quota,
            wacc=self._settings.wacc,
            charge=self._settings.charge,
        )
        rows = chosen.bought
        rented = rentals(kept, rows[len(terms) :], self._prices.min_months)
        held = held_by(self._contracts, terms, rows[: len(terms)], rented)
        rent = self._rent
        if spot is None:
            rent = replace(rent, spot=None, on_demand_quota=None)
        bills = [
            month_bill(month, hours, held, rent, usd)
            for month, (hours, usd) in enumerate(zip(wanted, beside, strict=True), 1)
        ]
        return held, bills, chosen

    def _month(
        self, bill: MonthBill, nodes: np.ndarray, hours: Hours, held: Sequence[Held]
    ) -> Month:
        assumed = any(each.is_assumed and each.runs(bill.month) for each in held)
        factor = self._factors[bill.month - 1]
        busiest, mean = self._curve.busiest_per_s, float(self._curve.mean_per_s.mean())
        requests_per_s = mean * factor / self._tokens[bill.month - 1]
        trace, requests = self._trace, mean * factor * HOURS_PER_MONTH * 3600
        power, energy, t_co2e = self._power, None, None
        if power is not None:
            energy = kwh(hours.node_hours, power.kw, power.draw, power.pue)
            t_co2e = energy * power.g_co2e_per_kwh / 1e6
        return Month(
            work_factor=factor,
            busiest_per_s=busiest * factor / self._tokens[bill.month - 1],
            mean_per_s=requests_per_s,
            replicas=int(self._by_rate.replicas(np.array([busiest * factor]))[0]),
            known_by=self._by_rate.known_by(busiest * factor),
            nodes=nodes,
            hours=hours,
            bill=bill,
            kwh=energy,
            t_co2e=t_co2e,
            prompt_tokens=float(trace.prompt_tokens.mean()) * requests,
            output_tokens=float(trace.output_tokens.mean()) * requests,
            is_doubtful=assumed or self._prices.is_doubtful,
        )
