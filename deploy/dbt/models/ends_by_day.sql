select cast(decided_at as date) as day, real_topic, decision, count(*) as messages
from {{ source('halfop', 'decisions') }}
where decision in ('COMMIT', 'ROLLBACK', 'DISCARD')
group by all
