-- Limits of cost and tokens. Tokens are input plus output tokens. Steps whose price is unknown count as free.

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
    allowed record;
    raised jsonb;
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
    IF raised_scope = 'day' THEN
        -- Reads and writes in one statement: other sessions of the workspace may raise it too.
        UPDATE workspaces
        SET daily_max_cost_usd =
                CASE WHEN daily_max_cost_usd IS NOT NULL THEN greatest(daily_max_cost_usd, new_max_cost_usd) END,
            daily_max_tokens = CASE WHEN daily_max_tokens IS NOT NULL THEN greatest(daily_max_tokens, new_max_tokens) END,
            revision = revision + 1
        WHERE id = action.workspace_id;
        RETURN NULL;
    END IF;
    SELECT CASE WHEN l.max_cost_usd IS NOT NULL THEN greatest(l.max_cost_usd, new_max_cost_usd) END AS max_cost_usd,
           CASE WHEN l.max_tokens IS NOT NULL THEN greatest(l.max_tokens, new_max_tokens) END AS max_tokens
    INTO allowed FROM limits_of_run(action.run_id) l WHERE l.scope = raised_scope;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF raised_scope = 'run' THEN
        UPDATE runs SET max_cost_usd = allowed.max_cost_usd, max_tokens = allowed.max_tokens WHERE id = action.run_id;
    ELSE
        raised := jsonb_build_object('max_cost_usd', allowed.max_cost_usd, 'max_tokens', allowed.max_tokens);
        -- From now on the limits do not follow the agent: the next run would have those of the agent again.
        UPDATE sessions s
        SET limits = s.limits || jsonb_build_object('session', raised), revision = s.revision + 1,
            overrides = CASE WHEN s.agent_id IS NULL THEN s.overrides ELSE ARRAY(
                SELECT DISTINCT field COLLATE "C" FROM unnest(s.overrides || 'limits'::text) AS field ORDER BY 1
            ) END
        WHERE s.id = action.session_id;
    END IF;
    RETURN NULL;
END;
$$;
