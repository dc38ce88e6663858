"""Outcomes of transactions: COMMIT or ROLLBACK from what a real broker wrote, because its op messages name none.

A half message was committed if the log holds its final message, and rolled back if all of the log between the half
message and its op has been read and no final message was there. Three modules, in the order of their use:

- `within_stretch`: in workers, over Arrow batches of one stretch of a store's log. Half message, final message and op
  mostly stand close together, so that this settles nearly all items of `land store`.
- `by_join`: the rule as a join of items with half messages and final messages that have landed.
- `op_rows`: rows of op_messages with their outcomes, for `land store` and `land broker`. It calls the join for what is
  not settled yet, and again later for items that landed without an outcome.
"""
