-- How long the audit log is kept. A row that only the owner of the tables can write: what is past its time is decided
-- here and not by who asks for it to be removed. Without the row nothing is removed.
CREATE TABLE audit_retention (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    keep_days integer NOT NULL CHECK (keep_days > 0)
);
