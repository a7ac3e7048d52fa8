function beginReadings() {}
