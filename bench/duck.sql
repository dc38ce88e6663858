-- A backlog of half messages and their ops, reconciled by DuckDB: bench/duck.py runs it.
COPY (
  WITH half AS (
    SELECT broker_name, queue_id, queue_offset, commit_log_offset, uniq_key, producer_group, real_topic, real_queue_id,
      born_timestamp, store_timestamp, landed_at,
      try_cast(properties['$CHECK_IMMUNITY'] AS BIGINT) AS immunity,
      coalesce(try_cast(properties['$CHECK_TIMES'] AS INT), 0) AS check_times,
      epoch_ms(TIMESTAMPTZ '$now' - born_timestamp) AS age
    FROM read_parquet('$warehouse/half_messages/*.parquet')),
  op AS (
    SELECT broker_name, queue_id, half_offset, queue_offset AS op_queue_offset, outcome, from_check,
      producer_group AS op_group, commit_log_offset AS op_log_offset, tran_state_table_offset
    FROM read_parquet('$warehouse/op_messages/*.parquet')
    WHERE tag = '$END_TAG' AND half_offset >= 0 AND outcome IN ('COMMIT', 'ROLLBACK')),
  joined AS (
    SELECT half.*, op_queue_offset, outcome, from_check
    FROM half LEFT JOIN op ON half.broker_name = op.broker_name AND half.queue_id = op.queue_id
      AND half.queue_offset = op.half_offset
      AND coalesce(op_group = producer_group, true) AND coalesce(op_log_offset = commit_log_offset, true)
      AND coalesce(tran_state_table_offset = queue_offset, true))
  SELECT 1::BIGINT AS run_id, * EXCLUDE (outcome, from_check, age, immunity),
    CASE
      WHEN real_topic IS NULL OR real_queue_id IS NULL OR length(real_topic) > $TOPIC_MAX_LENGTH
        OR NOT regexp_full_match(real_topic, '$LEGAL_TOPIC') OR real_topic IN ($NOT_ALLOWED_SEND)
        OR starts_with(lower(real_topic), '$SYSTEM_PREFIX') THEN 'REJECT'
      WHEN outcome IS NOT NULL THEN outcome
      WHEN producer_group IS NULL THEN 'REJECT'
      WHEN check_times >= 15 OR age > 72 * 3600000 THEN 'DISCARD'
      WHEN store_timestamp >= TIMESTAMPTZ '$now' OR age <= immunity * 1000 THEN 'WAIT'
      WHEN immunity IS NULL AND age BETWEEN 0 AND 6000 THEN 'WAIT'
      ELSE 'CHECK'
    END AS decision,
    CASE WHEN from_check THEN 'CHECK' ELSE 'PRODUCER' END AS reason
  FROM joined
) TO '$out/decisions.parquet';

COPY (
  SELECT half.real_topic AS topic, half.real_queue_id AS queue_id, body, flag, tags, keys,
    (coalesce(sys_flag, 0) & ~$TRANSACTION_TYPE_MASK) | $TRANSACTION_COMMIT AS sys_flag,
    half.born_timestamp, born_host, half.store_timestamp, store_host, reconsume_times,
    half.commit_log_offset AS prepared_transaction_offset, half.uniq_key AS transaction_id,
    map_from_entries(list_filter(map_entries(properties), lambda e:
      e.key NOT IN ('$REAL_TOPIC', '$REAL_QUEUE_ID', '$TRAN_MSG'))) AS properties,
    broker_name, queue_id AS half_queue_id, queue_offset AS half_queue_offset, op_queue_offset, run_id,
    TIMESTAMPTZ '$now' AS committed_at
  FROM read_parquet('$warehouse/half_messages/*.parquet') AS half
  JOIN read_parquet('$out/decisions.parquet') AS decided
  USING (broker_name, queue_id, queue_offset) WHERE decision = 'COMMIT'
) TO '$out/topics' (FORMAT parquet, PARTITION_BY (topic));

COPY (
  SELECT sha256(concat_ws('/', run_id, broker_name, queue_id, queue_offset)) AS request_id,
    half.* EXCLUDE (landed_at), check_times + 1 AS check_times, run_id, TIMESTAMPTZ '$now' AS requested_at
  FROM read_parquet('$warehouse/half_messages/*.parquet') AS half
  JOIN read_parquet('$out/decisions.parquet') AS decided
  USING (broker_name, queue_id, queue_offset) WHERE decision = 'CHECK'
) TO '$out/check_requests.parquet'
