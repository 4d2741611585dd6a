"""Measurements, run by hand: timings never decide a test."""
