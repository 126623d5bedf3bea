-- The audit log by what was done and by the kind of object, newest or oldest first, without reading through the rest.
CREATE INDEX audit_events_action ON audit_events (workspace_id, action, id);
CREATE INDEX audit_events_object_type ON audit_events (workspace_id, object_type, id);
