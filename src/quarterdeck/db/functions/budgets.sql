-- Limits of cost and tokens. Tokens are input plus output tokens. Steps whose price is unknown count as free.

-- What a session has from its agent now: the fields of the version that it does not override, as JSON. Empty without an
-- agent. See inherited() in sessions/inheritance.py. The columns of the session may have the values of an
-- earlier version, which the active run uses.
CREATE OR REPLACE FUNCTION values_of_agent(of_session uuid) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT coalesce((
        SELECT v.configuration - s.overrides
        FROM sessions s JOIN agents a ON a.id = s.agent_id JOIN agent_versions v
            ON v.agent_id = a.id AND v.version = coalesce(s.agent_version, a.default_version, a.latest_version)
        WHERE s.id = of_session
    ), '{}')
$$;

-- The limit in force. NULL: none. One expression without a subquery, so that the planner can put it into a join.
CREATE OR REPLACE FUNCTION limit_in_force(
    scope text, limit_name text, run runs, session_limits jsonb, workspace workspaces
) RETURNS numeric
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE scope
        WHEN 'run' THEN coalesce(
            CASE limit_name WHEN 'max_cost_usd' THEN run.max_cost_usd ELSE run.max_tokens END,
            (session_limits #>> ARRAY[scope, limit_name])::numeric
        )
        WHEN 'session' THEN (session_limits #>> ARRAY[scope, limit_name])::numeric
        ELSE CASE limit_name WHEN 'max_cost_usd' THEN workspace.daily_max_cost_usd ELSE workspace.daily_max_tokens END
    END
$$;

-- The limits that apply to a run, in the order in which they are checked.
CREATE OR REPLACE FUNCTION limits_of_run(of_run uuid)
RETURNS TABLE (scope text, max_cost_usd numeric, max_tokens bigint)
LANGUAGE sql STABLE
AS $$
    SELECT scopes.scope, l.max_cost_usd, l.max_tokens
    FROM runs r JOIN sessions s ON s.id = r.session_id JOIN workspaces w ON w.id = r.workspace_id
    CROSS JOIN (VALUES (1, 'run'), (2, 'session'), (3, 'day')) AS scopes (position, scope)
    CROSS JOIN LATERAL (
        SELECT limit_in_force(scopes.scope, 'max_cost_usd', r, s.limits, w) AS max_cost_usd,
               limit_in_force(scopes.scope, 'max_tokens', r, s.limits, w)::bigint AS max_tokens
    ) AS l
    WHERE r.id = of_run AND (l.max_cost_usd IS NOT NULL OR l.max_tokens IS NOT NULL)
    ORDER BY scopes.position
$$;

-- What the run, its session, or its workspace since midnight UTC has used.
CREATE OR REPLACE FUNCTION used_in_scope(of_run uuid, in_scope text) RETURNS TABLE (cost_usd numeric, tokens bigint)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    run runs;
BEGIN
    SELECT * INTO run FROM runs WHERE id = of_run;
    IF in_scope = 'run' THEN
        RETURN QUERY SELECT coalesce(run.cost_usd, 0), run.input_tokens + run.output_tokens;
    ELSIF in_scope = 'session' THEN
        RETURN QUERY
        SELECT coalesce(s.expired_cost_usd, 0) + kept.cost_usd,
               s.expired_input_tokens + s.expired_output_tokens + kept.tokens
        FROM sessions s CROSS JOIN LATERAL (
            SELECT coalesce(sum(r.cost_usd), 0) AS cost_usd,
                   coalesce(sum(r.input_tokens + r.output_tokens), 0)::bigint AS tokens
            FROM runs r WHERE r.session_id = s.id
        ) AS kept
        WHERE s.id = run.session_id;
    ELSE
        RETURN QUERY
        SELECT coalesce(sum(u.cost_usd), 0), coalesce(sum(u.input_tokens + u.output_tokens), 0)::bigint
        FROM daily_usage u
        WHERE u.workspace_id = run.workspace_id AND u.day = (clock_timestamp() AT TIME ZONE 'UTC')::date;
    END IF;
END;
$$;

-- The first limit that the run has reached: no row, or one. `stopped` is NULL while the run may wait for a higher limit.
-- Otherwise it is the state of the action that ended the run: `resolved` with the decision to stop, or `expired`.
-- Without limits it reads four rows by their keys.
CREATE OR REPLACE FUNCTION reached_limit(of_run uuid)
RETURNS TABLE (scope text, limit_name text, maximum numeric, used numeric, stopped text)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    allowed record;
    spent record;
BEGIN
    RETURN QUERY
    SELECT a.reached->>'scope', a.reached->>'limit', (a.reached->>'maximum')::numeric, (a.reached->>'used')::numeric,
           a.state
    FROM actions a
    WHERE a.run_id = of_run AND a.kind = 'budget'
      AND (a.state = 'expired' OR a.state = 'resolved' AND a.resolution->>'decision' = 'stop')
    LIMIT 1;
    IF FOUND THEN
        RETURN;
    END IF;
    FOR allowed IN SELECT * FROM limits_of_run(of_run) LOOP
        SELECT * INTO spent FROM used_in_scope(of_run, allowed.scope);
        IF spent.cost_usd >= allowed.max_cost_usd THEN
            RETURN QUERY
            SELECT allowed.scope, 'max_cost_usd'::text, allowed.max_cost_usd, spent.cost_usd, NULL::text;
            RETURN;
        END IF;
        IF spent.tokens >= allowed.max_tokens THEN
            RETURN QUERY
            SELECT allowed.scope, 'max_tokens'::text, allowed.max_tokens::numeric, spent.tokens::numeric, NULL::text;
            RETURN;
        END IF;
    END LOOP;
END;
$$;

-- Open budget actions that no run has to wait for any more, oldest first: the limit was raised or removed, or its day is
-- over. Nothing is added up: a run that continues checks its limits, and may open a new action with the limit of then.
CREATE OR REPLACE FUNCTION lifted_actions() RETURNS TABLE (id uuid, session_id uuid)
LANGUAGE sql STABLE
AS $$
    SELECT a.id, a.session_id
    FROM actions a JOIN runs r ON r.id = a.run_id JOIN sessions s ON s.id = a.session_id
    JOIN workspaces w ON w.id = a.workspace_id
    WHERE a.state = 'open' AND a.kind = 'budget' AND (
        -- As doubles, because the action has the limit as one: a numeric limit could stay a little higher for ever.
        (limit_in_force(a.reached->>'scope', a.reached->>'limit', r, s.limits, w)::float8
            > (a.reached->>'maximum')::float8) IS NOT FALSE
        -- The day changes a minute late here: a run that reached the limit just before midnight may have begun to wait
        -- just after it.
        OR a.reached->>'scope' = 'day' AND ((r.waiting_since - interval '1 minute') AT TIME ZONE 'UTC')::date
            < ((now() - interval '1 minute') AT TIME ZONE 'UTC')::date
    )
    ORDER BY a.id
$$;

-- Raises the limits of the scope that a budget action names. Returns NULL if it did. Otherwise nothing changed, and the
-- result is what has been used: the new value of the reached limit must be higher. A limit that is not set, or is higher
-- already, stays as it is. The caller holds the lock of the session.
CREATE OR REPLACE FUNCTION raise_limit(of_action uuid, new_max_cost_usd numeric, new_max_tokens bigint) RETURNS numeric
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    action actions;
    raised_scope text;
    used numeric;
    spent record;
BEGIN
    SELECT * INTO STRICT action FROM actions WHERE id = of_action AND kind = 'budget';
    raised_scope := action.reached->>'scope';
    SELECT * INTO spent FROM used_in_scope(action.run_id, raised_scope);
    IF action.reached->>'limit' = 'max_cost_usd' THEN
        used := spent.cost_usd;
        IF new_max_cost_usd > used IS NOT TRUE THEN
            RETURN used;
        END IF;
    ELSE
        used := spent.tokens;
        IF new_max_tokens > used IS NOT TRUE THEN
            RETURN used;
        END IF;
    END IF;
    CASE raised_scope
        WHEN 'day' THEN
            -- Reads and writes in one statement: other sessions of the workspace may raise it too.
            UPDATE workspaces
            SET daily_max_cost_usd = raised_limit(daily_max_cost_usd, new_max_cost_usd),
                daily_max_tokens = raised_limit(daily_max_tokens, new_max_tokens), revision = revision + 1
            WHERE id = action.workspace_id;
        WHEN 'session' THEN
            PERFORM raise_limit_of_session(action.session_id, action.run_id, new_max_cost_usd, new_max_tokens);
        ELSE
            UPDATE runs r
            SET max_cost_usd = raised_limit(l.max_cost_usd, new_max_cost_usd),
                max_tokens = raised_limit(l.max_tokens, new_max_tokens)
            FROM limits_of_run(action.run_id) l WHERE r.id = action.run_id AND l.scope = 'run';
    END CASE;
    RETURN NULL;
END;
$$;

-- A limit that is not set stays so, and none becomes lower.
CREATE OR REPLACE FUNCTION raised_limit(present numeric, wanted numeric) RETURNS numeric
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN present IS NOT NULL THEN greatest(present, wanted) END;

-- Part of raise_limit(). A session that follows an agent may show higher or lower limits than the run has, which began
-- under an earlier version. The raise starts from what the session shows, and the run keeps the limits of a run that it
-- has. If the agent allows as much already, the session goes on following it.
CREATE OR REPLACE FUNCTION raise_limit_of_session(
    of_session uuid, of_run uuid, new_max_cost_usd numeric, new_max_tokens bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    no_limit CONSTANT bigint := 9223372036854775807;
    stored jsonb;
    shown jsonb;
    shown_max_cost_usd numeric;
    shown_max_tokens bigint;
    is_raised boolean;
BEGIN
    SELECT s.limits, coalesce(values_of_agent(s.id)->'limits', s.limits) INTO stored, shown
    FROM sessions s WHERE s.id = of_session;
    shown_max_cost_usd := shown #>> '{session,max_cost_usd}';
    shown_max_tokens := shown #>> '{session,max_tokens}';
    is_raised := (new_max_cost_usd > shown_max_cost_usd OR new_max_tokens > shown_max_tokens) IS TRUE;
    IF shown->'run' IS DISTINCT FROM stored->'run' THEN
        UPDATE runs r
        SET max_cost_usd = coalesce(r.max_cost_usd, (stored #>> '{run,max_cost_usd}')::numeric, no_limit),
            max_tokens = coalesce(r.max_tokens, (stored #>> '{run,max_tokens}')::bigint, no_limit)
        WHERE r.id = of_run;
    END IF;
    UPDATE sessions s
    SET limits = shown || jsonb_build_object('session', jsonb_build_object(
            'max_cost_usd', raised_limit(shown_max_cost_usd, new_max_cost_usd),
            'max_tokens', raised_limit(shown_max_tokens, new_max_tokens)
        )),
        revision = s.revision + is_raised::integer,
        -- Otherwise the next run would have the limits of the agent again.
        overrides = CASE WHEN s.agent_id IS NULL OR NOT is_raised THEN s.overrides ELSE ARRAY(
            SELECT DISTINCT field COLLATE "C" FROM unnest(s.overrides || 'limits'::text) AS field ORDER BY 1
        ) END
    WHERE s.id = of_session;
END;
$$;
