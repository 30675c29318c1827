"""All cases of each kind of backend, in the order in which they are run: what one thread does first, processes and faults last."""

from __future__ import annotations

from mzsql.testing import blob_cases, concurrent, consensus_cases, faulted, oracle_cases
from mzsql.testing.contract import Case, case
from mzsql.testing.machines import blob_machine, consensus_machine, oracle_machine
from mzsql.testing.opening_cases import options
from mzsql.testing.sites import BlobSite, ConsensusSite, OracleSite

BLOB_CASES: list[Case[BlobSite]] = [*blob_cases.CASES]
case(BLOB_CASES)(options)
case(BLOB_CASES, name="state_machine")(blob_machine)
case(BLOB_CASES, name="threads")(concurrent.blob_threads)
case(BLOB_CASES, name="processes")(concurrent.blob_processes)
case(BLOB_CASES, name="killed_processes")(concurrent.blob_killed)
case(BLOB_CASES, name="forked")(concurrent.blob_forked)
case(BLOB_CASES, name="faults")(faulted.blob_faults)

CONSENSUS_CASES: list[Case[ConsensusSite]] = [*consensus_cases.CASES]
case(CONSENSUS_CASES)(options)
case(CONSENSUS_CASES, name="state_machine")(consensus_machine)
case(CONSENSUS_CASES, name="threads")(concurrent.consensus_threads)
case(CONSENSUS_CASES, name="processes")(concurrent.consensus_processes)
case(CONSENSUS_CASES, name="killed_processes")(concurrent.consensus_killed)
case(CONSENSUS_CASES, name="forked")(concurrent.consensus_forked)
case(CONSENSUS_CASES, name="faults")(faulted.consensus_faults)

ORACLE_CASES: list[Case[OracleSite]] = [*oracle_cases.CASES]
case(ORACLE_CASES)(options)
case(ORACLE_CASES, name="state_machine")(oracle_machine)
case(ORACLE_CASES, name="threads")(concurrent.oracle_threads)
case(ORACLE_CASES, name="processes")(concurrent.oracle_processes)
case(ORACLE_CASES, name="killed_processes")(concurrent.oracle_killed)
case(ORACLE_CASES, name="forked")(concurrent.oracle_forked)
case(ORACLE_CASES, name="faults")(faulted.oracle_faults)
