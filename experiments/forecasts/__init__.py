"""Trained models on new forecasts: loading, applying, coupling, bundles and products."""
