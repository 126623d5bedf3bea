-- The privileges of the role of API and workers: what their statements need and no more. Every migration applies this
-- file in one transaction: a privilege that is removed here is revoked.
--
-- ON DELETE CASCADE and foreign keys need no privilege here: PostgreSQL checks them as the owner of the tables.

REVOKE ALL ON ALL TABLES IN SCHEMA app FROM PUBLIC, {role};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA app FROM PUBLIC, {role};
REVOKE ALL ON ALL ROUTINES IN SCHEMA app FROM PUBLIC, {role};
REVOKE ALL ON SCHEMA app FROM PUBLIC, {role};

GRANT USAGE ON SCHEMA app TO {role};
GRANT SELECT ON app.migrations TO {role};

GRANT SELECT, INSERT, UPDATE (email, display_name, password_hash) ON app.users TO {role};
-- All columns: LOCK TABLE, at the first start, ignores privileges of columns.
GRANT SELECT, INSERT, UPDATE ON app.workspaces TO {role};
GRANT SELECT, INSERT, UPDATE (ended_at, joined_at, role, given_by) ON app.members TO {role};
GRANT SELECT, INSERT (id, user_id, kind, name, prefix, secret_hash, address, expires_at),
    UPDATE (last_used_at, ended_at) ON app.devices TO {role};
GRANT SELECT, INSERT, UPDATE (accepted_at, accepted_by, withdrawn_at) ON app.invitations TO {role};
GRANT SELECT, INSERT, UPDATE (answered_by, is_approved, collected_at), DELETE ON app.device_codes TO {role};
GRANT SELECT, INSERT, UPDATE (tries, began_at), DELETE ON app.sign_in_tries TO {role};
GRANT SELECT, INSERT, UPDATE (last_used_at), DELETE ON app.trusted_jobs TO {role};
GRANT SELECT, INSERT, DELETE ON app.job_keys TO {role};
GRANT SELECT, INSERT, UPDATE (members_until) ON app.identities TO {role};
GRANT SELECT, INSERT, DELETE ON app.sign_in_attempts TO {role};
GRANT SELECT, INSERT, UPDATE (tokens, confirmed_at, refresh_at, is_unsure), DELETE
    ON app.provider_sessions TO {role};
-- Triggers let these columns change in one direction only: keys and tokens that ended stay ended.
GRANT SELECT, INSERT (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by, expires_at),
    UPDATE (expires_at, last_used_at, revoked_at, replaced_by) ON app.api_keys TO {role};

GRANT SELECT, INSERT,
    UPDATE (title, title_event_id, model, instructions, settings, tool_policy, client_tools, limits, archived_at, revision,
            sandbox, files_revision, agent_id, agent_version, overrides, mcp_servers, output_schema, fallback_models,
            expired_input_tokens, expired_cached_tokens, expired_cache_write_tokens, expired_output_tokens,
            expired_cost_usd), DELETE
    ON app.sessions TO {role};
GRANT SELECT, INSERT, DELETE ON app.session_skills TO {role};
GRANT SELECT, INSERT (id, session_id, api_key_id, created_by, secret_hash, prefix, expires_at, label, may_resolve),
    UPDATE (revoked_at)
    ON app.session_tokens TO {role};
GRANT SELECT, INSERT, DELETE ON app.session_events TO {role};
GRANT USAGE ON SEQUENCE app.session_event_ids TO {role};
-- Written by a trigger.
GRANT SELECT, DELETE ON app.conversation_words TO {role};
-- FOR UPDATE needs UPDATE on some column, here and below: the most harmless one.
GRANT SELECT, INSERT, UPDATE (deleted_at), DELETE ON app.deleted_sessions TO {role};

-- All columns except for those that say to which session and workspace the run belongs.
GRANT SELECT, INSERT,
    UPDATE (state, attempt, barren_attempts, parked, waits_for_models, waits_for_batch_since, answered_by, last_input,
            consumed_through, inputs_accepted, inputs_consumed, unconsumed_bytes, steps, input_tokens, output_tokens,
            started_at, finished_at, failure, updated_at,
            unanswered_left_out, waiting_since, waited_seconds, setup, model, cached_tokens, cache_write_tokens, cost_usd,
            max_cost_usd, max_tokens, agent_id, agent_version, mcp_tools), DELETE
    ON app.runs TO {role};

GRANT SELECT, INSERT, UPDATE (state, resolved_at, resolved_by, resolution), DELETE ON app.actions TO {role};
GRANT SELECT, INSERT, UPDATE (input_tokens, cached_tokens, cache_write_tokens, output_tokens, cost_usd), DELETE
    ON app.run_usage TO {role};
GRANT SELECT, INSERT, UPDATE (input_tokens, cached_tokens, cache_write_tokens, output_tokens, cost_usd), DELETE
    ON app.daily_usage TO {role};

GRANT SELECT, INSERT, UPDATE (last_turn_at) ON app.workspace_turns TO {role};
GRANT SELECT, INSERT, UPDATE (taken, worker_id, cancelled, leaving, ask_at), DELETE ON app.run_jobs TO {role};
GRANT SELECT, INSERT (id), UPDATE (last_heartbeat), DELETE ON app.workers TO {role};
GRANT SELECT, INSERT, UPDATE (until, refusals, reason, refused, probe_run_id), DELETE ON app.model_pauses TO {role};
GRANT SELECT, INSERT, UPDATE (begun_at), DELETE ON app.model_requests TO {role};
GRANT SELECT, INSERT, UPDATE (used_tokens, counted_at) ON app.model_limits TO {role};
GRANT SELECT, INSERT, UPDATE (last_turn_at) ON app.model_turns TO {role};
GRANT SELECT, INSERT, UPDATE (handle, cancelled, look_at), DELETE ON app.model_batches TO {role};
GRANT SELECT, INSERT, UPDATE (step, model, batch_group, body, batch_id, result, failure, created_at), DELETE
    ON app.batch_requests TO {role};

GRANT SELECT, INSERT, UPDATE (name, latest_version, default_version, revision, archived_at), DELETE ON app.skills
    TO {role};
GRANT SELECT, INSERT, DELETE ON app.skill_versions TO {role};
GRANT SELECT, INSERT, DELETE ON app.skill_version_contents TO {role};
GRANT SELECT, INSERT, UPDATE (name, latest_version, default_version, revision, archived_at) ON app.agents TO {role};
GRANT SELECT, INSERT ON app.agent_versions TO {role};
GRANT SELECT, INSERT ON app.agent_version_skills TO {role};
GRANT SELECT, INSERT, UPDATE (secret, revision, rotated_at), DELETE ON app.credentials TO {role};
GRANT SELECT, INSERT, UPDATE (name, url, command, credential_id, revision, checked_at, check_failure), DELETE
    ON app.mcp_servers TO {role};
GRANT SELECT, INSERT, DELETE ON app.mcp_tools TO {role};
GRANT SELECT, INSERT, UPDATE (touched_at), DELETE ON app.blobs TO {role};
GRANT SELECT, INSERT, DELETE ON app.condemned_blobs TO {role};
-- UPDATE: a file is locked while it is being attached.
GRANT SELECT, INSERT, UPDATE (name), DELETE ON app.files TO {role};
GRANT SELECT, INSERT, DELETE ON app.session_attachments TO {role};
GRANT SELECT, INSERT, UPDATE (kind, sha256, bytes, mode, target, modified_at), DELETE ON app.session_files TO {role};

GRANT SELECT, INSERT,
    UPDATE (url, host, events, description, enabled, disabled_reason, failing_since, secret, previous_secret,
            previous_secret_expires_at, revision),
    DELETE ON app.webhooks TO {role};
GRANT SELECT, INSERT,
    UPDATE (state, attempts, attempts_before, sending, next_attempt_at, last_status, last_error, duration_ms,
            delivered_at),
    DELETE ON app.webhook_deliveries TO {role};

GRANT SELECT, INSERT, UPDATE (created_at), DELETE ON app.receipts TO {role};
-- Only expire_audit_entries() deletes entries, and nothing changes them.
GRANT SELECT, INSERT ON app.audit_events TO {role};

GRANT SELECT ON app.audit_retention TO {role};

-- Functions of triggers need no privilege.
GRANT EXECUTE ON FUNCTION app.session_lock, app.credential_lock, app.receipt_lock, app.input_receipt_lock,
    app.running_runs_lock, app.turns_lock, app.webhooks_lock, app.stored_credentials_lock, app.mcp_servers_lock,
    app.add_run, app.enqueue_run, app.submit_inputs,
    app.permissions_of, app.find_principals, app.find_submitter, app.caller_of, app.actor, app.take_lock, app.waiting_inputs,
    app.read_conversation, app.enqueue_run_after, app.waiting_workspaces, app.next_run_job, app.ask_runs_to_leave,
    app.summary_counts, app.read_log, app.workspace_word, app.short_words, app.search_query, app.matching_sessions,
    app.start_pending_run, app.repeat_inputs, app.limit_in_force, app.limits_of_run,
    app.used_in_scope, app.reached_limit, app.raise_limit, app.lifted_actions, app.continue_run, app.read_actions,
    app.is_blob_used, app.is_path_free, app.attachments_folder, app.attachment_path, app.find_attachments,
    app.store_attachments, app.lowest_id_at, app.expire_audit_entries, app.has_ended_before, app.lock_to_expire,
    app.expire_log, app.expire_logs, app.values_of_agent, app.raised_limit, app.raise_limit_of_session,
    app.last_starting_input, app.first_bytes,
    app.unpark_next_run, app.begin_attempt, app.title_of, app.give_title, app.finish_run,
    app.record_step, app.next_run_jobs, app.cancel_run_jobs, app.synchronize_worker, app.pause_model, app.resume_model,
    app.announce_model_pause, app.try_paused_model, app.model_limits_lock, app.limits_of_model, app.tokens_in_use,
    app.model_has_room, app.count_model_tokens, app.let_requests_go, app.begin_model_request, app.end_model_request,
    app.release_waiting_runs, app.add_usage, app.batches_lock, app.model_without_batches, app.take_model_batches
    TO {role};
