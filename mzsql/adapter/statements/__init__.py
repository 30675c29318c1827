"""Carrying out statements: DDL, INSERT, UPDATE, DELETE, COPY, cursors, transactions."""
