{{- define "quarterdeck.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "quarterdeck.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "quarterdeck.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "quarterdeck.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Takes a list: the root and the component. */}}
{{- define "quarterdeck.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "quarterdeck.labels" -}}
{{- $root := index . 0 -}}
{{ include "quarterdeck.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{- define "quarterdeck.podAnnotations" -}}
{{- if and .Values.metrics.enabled (not .Values.metrics.podMonitor.enabled) }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.metrics.port | quote }}
{{- end }}
{{- end }}

{{/* What all pods of the chart have. The part that differs is in the templates. */}}
{{- define "quarterdeck.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "quarterdeck.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "quarterdeck.env" -}}
- name: QUARTERDECK_BLOB_STORE_URL
  value: {{ .Values.blobStoreUrl | quote }}
{{- if .Values.metrics.enabled }}
- name: QUARTERDECK_METRICS_HOST
  value: 0.0.0.0
- name: QUARTERDECK_METRICS_PORT
  value: {{ .Values.metrics.port | quote }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}

{{- define "quarterdeck.volumeMounts" -}}
- name: data
  mountPath: /var/lib/quarterdeck
- name: tmp
  mountPath: /tmp
{{- end }}

{{/* Nothing in them is needed after a restart. */}}
{{- define "quarterdeck.volumes" -}}
- name: data
  emptyDir: {}
- name: tmp
  emptyDir: {}
{{- end }}
