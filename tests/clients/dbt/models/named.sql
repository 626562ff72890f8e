{{ config(materialized='view') }}
SELECT n, name FROM {{ source('files', 'numbers_file') }} WHERE name IS NOT NULL
