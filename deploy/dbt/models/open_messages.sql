-- An open message has a row in every run that looked at it: the last run that decided counts.
select producer_group, real_topic, decision, reason, count(*) as messages, min(born_timestamp) as oldest
from {{ source('halfop', 'decisions') }}
where decision in ('CHECK', 'WAIT')
  and run_id = (select max(run_id) from {{ source('halfop', 'runs') }} where event = 'CLOSED')
group by all
