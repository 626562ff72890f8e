SELECT n / 10 AS ten, COUNT(*) AS numbers, MAX(name) AS name FROM {{ ref('named') }} GROUP BY n / 10
